//! `tally explain`: everything that is stored about one fact, and what it means, in words and as JSON.

mod view;
mod words;

use std::path::Path;

use schema::{FactKey, KindName, Kinds, Member, Namespace, TargetKey};
use store::{Protocol, StoreError};

pub use view::Explanation;

use crate::{
    cli::ExplainArgs,
    client::{Client, segment},
    config::Config,
    failure::{Failure, OK},
    output::{print, print_json},
    serve::{Node, Opening},
    suggest::suggestion,
};

/// `tally explain`.
pub async fn run(args: ExplainArgs) -> Result<u8, Failure> {
    let explanation = match &args.data {
        Some(data) => offline(&args, data).await?,
        None => {
            let client = Client::new(args.url.as_deref().unwrap_or("http://127.0.0.1:8080"), 1)?;
            let [namespace, target, kind, member] =
                [&args.namespace, &args.target, &args.kind, &args.member].map(|text| segment(text));
            let query = format!("namespace={namespace}&target={target}&kind={kind}&member={member}");
            client.get(&format!("/v1/ops/explain?{query}")).await?
        }
    };
    if args.json { print_json(&explanation) } else { print(&(explanation.words.join("\n") + "\n")) }?;
    Ok(OK)
}

/// Opens the store here and changes nothing in it.
async fn offline(args: &ExplainArgs, data: &Path) -> Result<Explanation, Failure> {
    let config = Config::from_flags(&[("data".to_owned(), data.display().to_string())])?;
    let node = Node::open(&config, Opening::Check).await?;
    let kinds = node.protocol.settings().kinds.clone();
    let key = key(&kinds, &args.namespace, &args.target, &args.kind, &args.member);
    let key = key.map_err(|(field, why)| Failure::usage(format!("{field}: {why}")))?;
    let failed = |e: StoreError| Failure::unreachable(e.to_string());
    let explained = explain(&node.protocol, &key).await.map_err(failed);
    node.engine.close().await.map_err(failed)?;
    explained
}

/// The fact that is asked about, or the field that is wrong and why.
pub fn key(kinds: &Kinds, namespace: &str, target: &str, kind: &str, member: &str) -> Result<FactKey, (&'static str, String)> {
    let wrong = |field: &'static str| move |e: schema::IdError| (field, e.to_string());
    let namespace = Namespace::parse(namespace).map_err(wrong("namespace"))?;
    let target = TargetKey::new(&namespace, target).map_err(wrong("target"))?;
    let member = Member::parse(member).map_err(wrong("member"))?;
    let known: Option<KindName> = kinds.get(kind).map(|k| k.name.clone());
    let kind = known.ok_or_else(|| {
        let near = suggestion(kind, kinds.iter().map(|k| k.name.as_str()));
        ("kind", format!("there is no kind `{kind}`{near}"))
    })?;
    Ok(FactKey { target, kind, member })
}

/// Gathers what is stored about `key` and says what it means.
pub async fn explain(protocol: &Protocol, key: &FactKey) -> Result<Explanation, StoreError> {
    let explained = protocol.explain(key).await?;
    let kind = protocol.settings().kinds.get(key.kind.as_str());
    Ok(words::with_words(view::of(key, kind, protocol.settings(), &explained)))
}
