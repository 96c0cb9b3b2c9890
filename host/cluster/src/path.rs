//! References to objects, and URLs of the Kubernetes API.

use std::fmt::Write as _;

use polity_core::contract::{Code, Failure, Kind, ObjectRef};
use polity_kube_rules::names::{LONGEST_SUBDOMAIN, is_path_segment};

/// Where the API server serves a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// `/api/v1` or `/apis/G/V`
    pub(crate) root: String,
    /// `machines`
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

impl Resource {
    /// The path of a collection, in one namespace or in all.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> Result<String, Failure> {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Ok(format!(
                "{}/namespaces/{}/{}",
                self.root,
                segment("namespace", namespace)?,
                self.plural
            )),
            None => Ok(format!("{}/{}", self.root, self.plural)),
        }
    }

    /// The path of one object or of a subresource.
    pub(crate) fn object(
        &self,
        namespace: Option<&str>,
        name: &str,
        subresource: Option<&str>,
    ) -> Result<String, Failure> {
        if self.namespaced && namespace.is_none() {
            let message = format!("{} are namespaced, and no namespace is named", self.plural);
            return Err(Failure::new(Code::InvalidArgument, message));
        }
        let mut path = format!("{}/{}", self.collection(namespace)?, segment("name", name)?);
        if let Some(subresource) = subresource {
            path.push('/');
            path.push_str(&segment("subresource", subresource)?);
        }
        Ok(path)
    }
}

/// The path of a group and version: `/api/v1` or `/apis/G/V`.
pub(crate) fn root(api_version: &str) -> Result<String, Failure> {
    match api_version.split_once('/') {
        None => Ok(format!("/api/{}", segment("apiVersion", api_version)?)),
        Some((group, version)) => Ok(format!(
            "/apis/{}/{}",
            segment("apiVersion", group)?,
            segment("apiVersion", version)?
        )),
    }
}

/// A checked and escaped path segment. API servers undo escapes before they split a path. So escaping is not
/// enough: a name that contains `/`, is `..`, or is empty (which turns the URL of an object into the URL of
/// all objects) is refused.
fn segment(what: &str, text: &str) -> Result<String, Failure> {
    if !is_path_segment(text) || text.len() > LONGEST_SUBDOMAIN {
        let shown: String = text.chars().take(LONGEST_SUBDOMAIN).collect();
        let message = format!("{shown:?} is not a valid {what} of an object");
        return Err(Failure::new(Code::InvalidArgument, message));
    }
    Ok(escaped(text))
}

/// The query part of a URL: `?a=b&c=d`.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        text.push(if text.is_empty() { '?' } else { '&' });
        let _ = write!(text, "{name}={}", escaped(value));
    }
    text
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' | b'.' => {
                escaped.push(char::from(byte));
            }
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

/// A reference to an object of the core group.
pub(crate) fn core_object(kind: &str, namespace: Option<&str>, name: &str) -> ObjectRef {
    ObjectRef {
        cluster: None,
        kind: Kind {
            api_version: "v1".into(),
            kind: kind.into(),
        },
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machines() -> Resource {
        Resource {
            root: root("g.example/v1").expect("a root"),
            plural: "machines".into(),
            namespaced: true,
        }
    }

    #[test]
    fn urls_are_those_of_the_kubernetes_api() {
        let path = machines().object(Some("a"), "m.1", Some("status"));
        assert_eq!(
            path.as_deref(),
            Ok("/apis/g.example/v1/namespaces/a/machines/m.1/status")
        );
        let all = machines().collection(None);
        assert_eq!(all.as_deref(), Ok("/apis/g.example/v1/machines"));
        let nodes = Resource {
            root: root("v1").expect("a root"),
            plural: "nodes".into(),
            namespaced: false,
        };
        assert_eq!(
            nodes.object(Some("ignored"), "n", None).as_deref(),
            Ok("/api/v1/nodes/n")
        );
    }

    #[test]
    fn no_name_leaves_its_segment() {
        let long = "x".repeat(10_000);
        for name in ["", ".", "..", "a/b", "../a", "a%2Fb", "a\0", "\u{1b}[31m", &long] {
            for path in [
                machines().object(Some("a"), name, None),
                machines().object(Some(name), "m", None),
                machines().object(Some("a"), "m", Some(name)),
                machines().collection(Some(name)),
            ] {
                let failure = path.expect_err(name);
                assert_eq!(failure.code, Code::InvalidArgument);
                assert!(failure.message.len() < 400 && !failure.message.contains('\u{1b}'));
            }
        }
        for version in ["", "../v1", "g/../v1", "g/v1/x", "g/"] {
            assert!(root(version).is_err(), "{version}");
        }
        let odd = machines().object(Some("a"), "a?b#c", None);
        assert_eq!(
            odd.as_deref(),
            Ok("/apis/g.example/v1/namespaces/a/machines/a%3Fb%23c")
        );
    }

    #[test]
    fn an_object_of_a_namespaced_kind_needs_its_namespace() {
        let failure = machines().object(None, "m", None).expect_err("no namespace");
        assert_eq!(failure.code, Code::InvalidArgument);
    }

    #[test]
    fn the_values_of_a_query_are_escaped() {
        assert_eq!(query(&[("a", "b=c,d"), ("e", "f g")]), "?a=b%3Dc%2Cd&e=f%20g");
    }
}
