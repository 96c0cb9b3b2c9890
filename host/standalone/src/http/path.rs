//! Parses request paths.

use percent_encoding::percent_decode_str;
use polity_kube_rules::names::is_path_segment;

use crate::http::refusal::Refusal;

/// A parsed request path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Route {
    /// `/healthz`, `/livez`, `/readyz`, and what lies below them.
    Health,
    /// `/version`
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/G`
    Group(String),
    /// `/api/v1` (the group is empty), `/apis/G/V`
    Resources(String, String),
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/api/v1`, `/openapi/v3/apis/G/V`
    OpenApi(String, String),
    /// A collection, an object or a subresource.
    Resource(Location),
}

/// The place of a collection, an object or a subresource.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Location {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    /// `None` for cluster-scoped kinds, and for a collection of all namespaces.
    pub(crate) namespace: Option<String>,
    /// `None` for a collection.
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// Parses a path; 404 if it cannot name anything.
pub(crate) fn parse(path: &str) -> Result<Route, Refusal> {
    let mut parts = Vec::new();
    for part in path.trim_start_matches('/').trim_end_matches('/').split('/') {
        let part = percent_decode_str(part).decode_utf8();
        let part = part.ok().filter(|part| stays_in_its_place(part));
        parts.push(part.ok_or_else(Refusal::no_such_path)?.into_owned());
    }
    let words: Vec<&str> = parts.iter().map(String::as_str).collect();
    let owned = |s: &&str| (*s).to_owned();
    Ok(match &words[..] {
        ["healthz" | "livez" | "readyz", ..] => Route::Health,
        ["version"] => Route::Version,
        ["api"] => Route::CoreVersions,
        ["apis"] => Route::Groups,
        ["apis", group] => Route::Group(owned(group)),
        ["api", version] => Route::Resources(String::new(), owned(version)),
        ["apis", group, version] => Route::Resources(owned(group), owned(version)),
        ["openapi", "v3"] => Route::OpenApiIndex,
        ["openapi", "v3", "api", version] => Route::OpenApi(String::new(), owned(version)),
        ["openapi", "v3", "apis", group, version] => Route::OpenApi(owned(group), owned(version)),
        ["api", version, rest @ ..] => Route::Resource(locate("", version, rest)?),
        ["apis", group, version, rest @ ..] => Route::Resource(locate(group, version, rest)?),
        _ => return Err(Refusal::no_such_path()),
    })
}

/// Whether a decoded segment still is one segment, or empty. A real API server decodes a path before it
/// splits it, so no object can have a name with a slash, and a client that builds such a path means something
/// else.
fn stays_in_its_place(segment: &str) -> bool {
    segment.is_empty() || is_path_segment(segment)
}

/// Parses the part of a path after the version. `namespaces` is both a kind and a prefix: `namespaces/NAME`
/// is the object, `namespaces/NAME/status` and `namespaces/NAME/finalize` are its subresources, and anything
/// else below it is a namespaced collection.
fn locate(group: &str, version: &str, rest: &[&str]) -> Result<Location, Refusal> {
    let mut found = Location {
        group: group.to_owned(),
        version: version.to_owned(),
        ..Location::default()
    };
    let rest = match rest {
        ["namespaces", namespace, "status" | "finalize"] if !namespace.is_empty() => rest,
        ["namespaces", namespace, below @ ..] if !namespace.is_empty() && !below.is_empty() => {
            found.namespace = Some((*namespace).to_owned());
            below
        }
        _ => rest,
    };
    if rest.is_empty() || rest.len() > 3 || rest.iter().any(|part| part.is_empty()) {
        return Err(Refusal::no_such_path());
    }
    found.plural = rest[0].to_owned();
    found.name = rest.get(1).map(|name| (*name).to_owned());
    found.subresource = rest.get(2).map(|sub| (*sub).to_owned());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(path: &str) -> Location {
        match parse(path) {
            Ok(Route::Resource(location)) => location,
            other => panic!("{path} is no resource: {other:?}"),
        }
    }

    #[test]
    fn a_namespace_is_an_object_and_a_prefix() {
        let object = location("/api/v1/namespaces/a");
        assert_eq!(
            (object.plural.as_str(), object.name.as_deref()),
            ("namespaces", Some("a"))
        );
        let status = location("/api/v1/namespaces/a/status");
        assert_eq!(
            (status.plural.as_str(), status.subresource.as_deref()),
            ("namespaces", Some("status"))
        );
        let pods = location("/api/v1/namespaces/a/pods");
        assert_eq!(
            (pods.plural.as_str(), pods.namespace.as_deref()),
            ("pods", Some("a"))
        );
    }

    #[test]
    fn no_segment_is_more_than_one_or_leads_elsewhere() {
        let odd = [
            "..%2fx",
            "..%2F..%2Fetc",
            "a%2Fb",
            "%2f",
            ".",
            "..",
            "%2e",
            "%2E%2e",
            "a%00",
            "%1b[2J",
            "%0a",
            "%ff",
            "%c3%28",
            "%c2%9b",
        ];
        for odd in odd {
            for path in [
                format!("/api/v1/namespaces/{odd}"),
                format!("/api/v1/namespaces/{odd}/pods"),
                format!("/api/v1/namespaces/a/pods/{odd}"),
                format!("/api/v1/namespaces/a/pods/p/{odd}"),
                format!("/apis/{odd}/v1/things"),
                format!("/apis/g/{odd}"),
                format!("/openapi/v3/apis/g/{odd}"),
                format!("/healthz/{odd}"),
            ] {
                assert_eq!(parse(&path).map_err(|refusal| refusal.code), Err(404), "{path}");
            }
        }
        assert_eq!(
            location("/api/v1/namespaces/%61/pods").namespace.as_deref(),
            Some("a")
        );
    }

    #[test]
    fn an_empty_segment_names_nothing() {
        assert_eq!(parse("/api/v1/namespaces//pods").unwrap_err().code, 404);
        assert_eq!(parse("/api/v1/pods/a/b/c").unwrap_err().code, 404);
    }
}
