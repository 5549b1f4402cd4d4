//! The API's description in OpenAPI 3.1, at `GET /openapi.json`.
//!
//! the files `openapi/*routes.json` say of each route what is its own, `openapi/*schemas.json` what bodies look like; what all routes
//! share (the parts of their paths, problem documents, keys) is added here once, so that no route can forget it. Tests hold
//! the routes to it in both directions, and every answer to what it says.

use axum::{Router, http::header, routing::get};
use serde_json::{Map, Value, json};

/// Where the document is served; no key is needed.
const PLACE: &str = "/openapi.json";

/// The route of the document.
pub fn router() -> Router {
    let text: bytes::Bytes = document().to_string().into();
    Router::new().route(PLACE, get(async move || ([(header::CONTENT_TYPE, "application/json")], text.clone())))
}

/// The whole document.
fn document() -> Value {
    let mut paths = joined(&[include_str!("openapi/routes.json"), include_str!("openapi/operator_routes.json")]);
    let schemas = joined(&[
        include_str!("openapi/schemas.json"),
        include_str!("openapi/ops_schemas.json"),
        include_str!("openapi/operator_schemas.json"),
    ]);
    for (path, item) in &mut paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            if let Some(operation) = operation.as_object_mut() {
                complete(path, method, operation);
            }
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tally",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "Likes, reactions and comment counts that are always right. Every error is a problem document \
                (RFC 9457) whose `type` names the sort, whose `field` the part that was wrong, and whose `detail` says what to do.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": shared_answers(),
            "securitySchemes": {
                "key": { "type": "http", "scheme": "bearer", "description": "A key that `tally key new` made." },
            },
        },
        // Without configured keys the server listens on loopback only, and asks for none.
        "security": [{ "key": [] }, {}],
    })
}

/// The members of several objects.
fn joined(texts: &[&str]) -> Map<String, Value> {
    let parse = |text: &&str| serde_json::from_str::<Map<String, Value>>(text).expect("constants that tests read");
    texts.iter().flat_map(parse).collect()
}

/// Parts of paths, by their name in the template.
fn path_part(name: &str) -> Option<(&'static str, Value)> {
    let id =
        |example: &str| json!({ "type": "string", "minLength": 1, "maxLength": 128, "pattern": NO_CONTROL, "example": example });
    Some(match name {
        "namespace" => ("Whose ids these are.", json!({ "type": "string", "pattern": "^[a-z0-9-]{1,32}$", "example": "shop" })),
        "target" => ("What is liked: 1 to 128 bytes of UTF-8 without control characters.", id("post-1")),
        "user" => ("A user: 1 to 128 bytes of UTF-8 without control characters.", id("anna")),
        "member" => ("Who is counted: 1 to 128 bytes of UTF-8 without control characters.", id("anna")),
        "kind" => ("What is counted.", json!({ "type": "string", "pattern": "^[a-z0-9_-]{1,32}$", "example": "like" })),
        "id" => {
            ("A number that an earlier answer gave out.", json!({ "type": "string", "pattern": "^[0-9]{1,20}$", "example": "1" }))
        }
        _ => return None,
    })
}

/// No control characters (U+0000 to U+001F, U+007F to U+009F).
const NO_CONTROL: &str = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$";

fn complete(path: &str, method: &str, operation: &mut Map<String, Value>) {
    let parameters = operation.entry("parameters").or_insert_with(|| json!([])).as_array_mut();
    if let Some(parameters) = parameters {
        for name in path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')) {
            if parameters.iter().all(|p| p["name"] != name)
                && let Some((description, schema)) = path_part(name)
            {
                parameters
                    .push(json!({ "name": name, "in": "path", "required": true, "description": description, "schema": schema }));
            }
        }
    }
    let Some(answers) = operation.entry("responses").or_insert_with(|| json!({})).as_object_mut() else { return };
    let shared: &[&str] = match path {
        "/healthz" | "/openapi.json" => &["405"],
        "/readyz" => &["405", "503"],
        "/metrics" => &["401", "403", "405", "500"],
        _ if method == "get" => &["400", "401", "403", "404", "405", "410", "422", "429", "503"],
        _ => &["400", "401", "403", "404", "405", "408", "409", "410", "413", "415", "422", "429", "503"],
    };
    for status in shared {
        answers.entry(*status).or_insert_with(|| json!({ "$ref": format!("#/components/responses/{status}") }));
    }
}

/// Problem documents that any route may answer.
fn shared_answers() -> Value {
    let text = json!({ "type": "string" });
    let header = |description: &str| json!({ "description": description, "required": true, "schema": text });
    let mut answers = Map::new();
    for (status, description, name, meaning) in [
        ("400", "Something in the request does not fit; `field` names it.", "", ""),
        ("401", "There is no valid key with the request.", "WWW-Authenticate", "`Bearer`"),
        ("403", "The key may not do this.", "", ""),
        ("404", "There is no such route, or nothing under that number.", "", ""),
        ("405", "The route does not take that method.", "Allow", "The methods that it takes."),
        ("408", "The body did not arrive in time.", "", ""),
        ("409", "Not as things stand now; `detail` says why.", "", ""),
        ("410", "The target is gone, or the run is forgotten.", "", ""),
        ("413", "The body is larger than 1 MiB, or 16 MiB where it names members to hide.", "", ""),
        ("415", "The body is not `application/json`.", "", ""),
        ("422", "The store refuses it as it is.", "", ""),
        ("429", "A limit is passed.", "Retry-After", "Seconds until it may work."),
        ("500", "A fault of the server.", "", ""),
        (
            "503",
            "Not possible now; the same request may be sent again. Unless `type` is `/problems/unknown` nothing was done.",
            "Retry-After",
            "Seconds until it may work.",
        ),
    ] {
        let mut answer = json!({
            "description": description,
            "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
        });
        let trace = "`00-<trace id>-<span>-<flags>`: the log line of a failed request says the same trace id.";
        answer["headers"] = json!({ "traceresponse": { "description": trace, "schema": text } });
        if !name.is_empty() {
            answer["headers"][name] = header(meaning);
        }
        answers.insert(status.to_owned(), answer);
    }
    Value::Object(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_name_of_its_own_a_summary_and_bounds_for_its_path() {
        let document = document();
        let mut names = std::collections::BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let name = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path} has no operationId"));
                assert!(names.insert(name.to_owned()), "{name} is the name of two operations");
                assert!(operation["summary"].is_string(), "{method} {path} has no summary");
                for part in path.split('/').filter_map(|p| p.strip_prefix('{')?.strip_suffix('}')) {
                    let known = operation["parameters"].as_array().unwrap();
                    let bounded = known.iter().any(|p| p["name"] == part && p["schema"]["pattern"].is_string());
                    assert!(bounded, "{method} {path}: {{{part}}} has no pattern");
                }
            }
        }
        assert!(names.len() > 15);
    }
}
