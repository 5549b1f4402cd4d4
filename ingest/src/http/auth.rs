//! Who asks, and what they may do: every route names the roles that it needs, one layer checks them.
//!
//! A route or method that is in no table is refused to everybody, so a new one cannot be forgotten.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
};
use percent_encoding::percent_decode_str;
use prometheus::{Histogram, IntCounter};
use schema::Namespace;

use super::Problem;
use crate::metrics::{CLASSES, HttpMetrics};

/// What a caller may do. No role holds another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Ask for counts, lists, states and metrics.
    Read,
    /// Like and withdraw, now.
    Write,
    /// Hide and show what others wrote.
    Moderate,
    /// Check, repair, import at given times, change modes and statuses.
    Operate,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Moderate, Self::Operate];

    /// Its name in files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Moderate => "moderate",
            Self::Operate => "operate",
        }
    }

    /// The role of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.name() == name)
    }
}

/// A set of roles.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles(u8);

impl Roles {
    /// Every role.
    pub const ALL: Self = Self(0b1111);

    /// Whether the role is in it.
    pub fn has(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }

    /// The roles in it.
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |r| self.has(*r))
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().fold(0, |set, role| set | 1 << role as u8))
    }
}

impl std::fmt::Debug for Roles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

/// The namespaces of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// Every one.
    All,
    /// These.
    Only(Vec<Namespace>),
}

impl Namespaces {
    fn has(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(list) => list.iter().any(|n| n.as_str() == namespace),
        }
    }
}

/// Who asks. Handlers take it as an argument; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Name of the key, for logs, limits and the audit log; never the key itself.
    pub name: Arc<str>,
    /// What they may do.
    pub roles: Roles,
    /// In which namespaces.
    pub namespaces: Arc<Namespaces>,
}

impl Caller {
    /// Whoever reaches a server without keys.
    pub fn local() -> Self {
        Self { name: "local".into(), roles: Roles::ALL, namespaces: Arc::new(Namespaces::All) }
    }

    /// 403 unless the caller has `role` in `namespace`: for routes whose namespace is in the query
    /// or in the body.
    pub fn may(&self, role: Role, namespace: &str) -> Result<(), Problem> {
        self.has(&[role])?;
        self.in_namespace(namespace)
    }

    /// Whether the caller may know of what belongs to `namespace`; `None`: to all of them, or nobody
    /// knows. For lists, and for what is answered as if it did not exist.
    pub fn sees(&self, namespace: Option<&str>) -> bool {
        match &*self.namespaces {
            Namespaces::All => true,
            only @ Namespaces::Only(_) => namespace.is_some_and(|namespace| only.has(namespace)),
        }
    }

    /// 403 unless the caller has `role` in every namespace.
    pub fn may_everywhere(&self, role: Role) -> Result<(), Problem> {
        self.has(&[role])?;
        match *self.namespaces {
            Namespaces::All => Ok(()),
            Namespaces::Only(_) => Err(Problem::forbidden("this needs a key for all namespaces (`*`)")),
        }
    }

    /// 403 unless the caller has one of `roles`.
    pub fn has(&self, roles: &[Role]) -> Result<(), Problem> {
        if roles.iter().any(|r| self.roles.has(*r)) {
            return Ok(());
        }
        let names: Vec<&str> = roles.iter().map(|r| r.name()).collect();
        Err(Problem::forbidden(&format!("this needs the role `{}`, which the key does not have", names.join("` or `"))))
    }

    /// 403 unless the key is for `namespace`: where the layer has checked the roles.
    pub fn in_namespace(&self, namespace: &str) -> Result<(), Problem> {
        if self.namespaces.has(namespace) {
            return Ok(());
        }
        let shown: String = namespace.chars().filter(|c| !c.is_control()).take(32).collect();
        Err(Problem::forbidden(&format!("the key is not for the namespace `{shown}`")))
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let unknown =
            || Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no-caller", "this route is not behind the check of keys");
        parts.extensions.get::<Self>().cloned().ok_or_else(unknown)
    }
}

/// Who knows the keys.
pub trait Authority: Send + Sync + 'static {
    /// The caller that a bearer token stands for; `None`: nobody. Must take the same time for every
    /// token that is not valid.
    fn caller(&self, token: Option<&str>) -> Option<Caller>;
}

/// The authority of a server without keys: everybody who reaches it may do everything.
#[derive(Debug, Clone)]
pub struct Open(Caller);

impl Default for Open {
    fn default() -> Self {
        Self(Caller::local())
    }
}

impl Authority for Open {
    fn caller(&self, _: Option<&str>) -> Option<Caller> {
        Some(self.0.clone())
    }
}

/// The token of `Authorization: Bearer …`, if there is exactly one such header.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (all.next()?.to_str().ok()?, all.next()) else { return None };
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Where the namespace of a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In the path, behind `/v1/`: the layer checks it.
    Path,
    /// In the query or the body: the handler calls [`Caller::may`].
    Handler,
    /// The request is about all namespaces: the layer asks for a key for all of them.
    All,
}

/// What one method of one route needs.
#[derive(Debug, Clone)]
pub struct Access {
    /// The method; `GET` stands for `HEAD` too.
    pub method: Method,
    /// The route's template.
    pub route: &'static str,
    /// One of these is enough.
    pub roles: &'static [Role],
    /// Where the namespace stands.
    pub scope: Scope,
    /// Whether it may take up to a minute, and not the usual request's time.
    pub slow: bool,
}

impl Access {
    /// An entry of a table of routes.
    pub const fn new(method: Method, route: &'static str, roles: &'static [Role], scope: Scope) -> Self {
        Self { method, route, roles, scope, slow: false }
    }

    /// May take up to a minute.
    #[must_use]
    pub const fn slow(mut self) -> Self {
        self.slow = true;
        self
    }

    /// Longest time until the head of the answer.
    pub(super) fn timeout(&self, usual: Duration) -> Duration {
        if self.slow { usual.max(Duration::from_secs(60)) } else { usual }
    }

    /// 403 unless the caller may.
    pub fn check(&self, caller: &Caller, path: &str) -> Result<(), Problem> {
        caller.has(self.roles)?;
        match (self.scope, &*caller.namespaces) {
            (_, Namespaces::All) | (Scope::Handler, _) => Ok(()),
            (Scope::All, Namespaces::Only(_)) => Err(Problem::forbidden("this needs a key for all namespaces (`*`)")),
            (Scope::Path, Namespaces::Only(_)) => {
                // Decoded as handlers do; what they would refuse is in nobody's list.
                let namespace = path.split('/').nth(2).unwrap_or_default();
                caller.in_namespace(&percent_decode_str(namespace).decode_utf8_lossy())
            }
        }
    }
}

/// What the layer knows of one route: its entries, and its metrics, looked up once.
pub(super) struct RouteEntry {
    methods: Vec<Access>,
    answers: [IntCounter; CLASSES.len()],
    seconds: Histogram,
}

impl RouteEntry {
    fn new(route: &str, metrics: &HttpMetrics) -> Self {
        Self {
            methods: Vec::new(),
            answers: CLASSES.map(|class| metrics.requests.with_label_values(&[route, class])),
            seconds: metrics.seconds.with_label_values(&[route]),
        }
    }

    /// The entry of a method, or 405 with those that there are.
    pub(super) fn access(&self, method: &Method) -> Result<&Access, Problem> {
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        self.methods.iter().find(|a| a.method == *method).ok_or_else(|| {
            let known: Vec<&str> = self.methods.iter().map(|a| a.method.as_str()).collect();
            Problem::method(&known.join(", "))
        })
    }

    pub(super) fn observe(&self, status: StatusCode, elapsed: Duration) {
        let class = match status.as_u16() {
            429 => "429",
            400..=499 => "4xx",
            500.. => "5xx",
            _ => "2xx",
        };
        let class = CLASSES.iter().position(|c| *c == class).expect("classes are constants");
        self.answers[class].inc();
        self.seconds.observe(elapsed.as_secs_f64());
    }
}

/// All routes behind the layer.
pub(super) struct RouteTable {
    routes: HashMap<&'static str, RouteEntry>,
    other: RouteEntry,
}

impl RouteTable {
    pub(super) fn new<'a>(entries: impl IntoIterator<Item = &'a Access>, metrics: &HttpMetrics) -> Self {
        let mut routes: HashMap<&'static str, RouteEntry> = HashMap::new();
        for access in entries {
            let entry = routes.entry(access.route).or_insert_with(|| RouteEntry::new(access.route, metrics));
            entry.methods.push(access.clone());
        }
        Self { routes, other: RouteEntry::new(super::OTHER, metrics) }
    }

    /// The entry of a matched route; one without methods where the route is in no table.
    pub(super) fn get(&self, route: Option<&str>) -> &RouteEntry {
        route.and_then(|r| self.routes.get(r)).unwrap_or(&self.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(roles: &[Role], namespaces: &[&str]) -> Caller {
        let only = namespaces.iter().map(|n| Namespace::parse(n).unwrap()).collect();
        Caller { name: "k".into(), roles: roles.iter().copied().collect(), namespaces: Arc::new(Namespaces::Only(only)) }
    }

    #[test]
    fn roles_do_not_hold_each_other_and_namespaces_are_exact() {
        for role in Role::ALL {
            assert_eq!(Role::parse(role.name()), Some(role));
            let one = caller(&[role], &["video"]);
            for asked in Role::ALL {
                assert_eq!(one.may(asked, "video").is_ok(), asked == role);
            }
            assert!(one.may(role, "vide").is_err());
            assert!(one.may_everywhere(role).is_err());
            assert!(Caller::local().may_everywhere(role).is_ok());
            assert!(one.sees(Some("video")) && !one.sees(Some("vide")) && !one.sees(None));
            assert!(Caller::local().sees(None) && Caller::local().sees(Some("vide")));
        }
        assert_eq!(Role::parse("admin"), None);
    }

    #[test]
    fn the_namespace_of_the_path_is_compared_after_decoding() {
        let entry = Access::new(Method::GET, "/v1/{namespace}/counts", &[Role::Read], Scope::Path);
        let reader = caller(&[Role::Read], &["video"]);
        for (path, fine) in [
            ("/v1/video/counts", true),
            ("/v1/%76ideo/counts", true),
            ("/v1/article/counts", false),
            ("/v1/%zz/counts", false),
            ("/v1/video%2Fx/counts", false),
            ("/v1//counts", false),
        ] {
            assert_eq!(entry.check(&reader, path).is_ok(), fine, "{path}");
        }
    }

    #[test]
    fn a_bearer_token_comes_from_exactly_one_header() {
        let headers =
            |values: &[&str]| -> HeaderMap { values.iter().map(|v| (header::AUTHORIZATION, v.parse().unwrap())).collect() };
        assert_eq!(bearer(&headers(&["Bearer abc"])), Some("abc"));
        assert_eq!(bearer(&headers(&["bearer  abc"])), Some("abc"));
        for bad in [&[][..], &["Basic abc"], &["Bearer"], &["Bearer a", "Bearer a"]] {
            assert_eq!(bearer(&headers(bad)), None, "{bad:?}");
        }
    }
}
