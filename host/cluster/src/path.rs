//! URLs of the Kubernetes API.

use std::fmt::Write as _;

/// How a kind is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// `/api/v1` or `/apis/G/V`
    pub(crate) root: String,
    /// `machines`
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

impl Resource {
    /// The collection, of one namespace or of all.
    pub(crate) fn collection(&self, namespace: Option<&str>) -> String {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{}/namespaces/{}/{}", self.root, segment(namespace), self.plural),
            None => format!("{}/{}", self.root, self.plural),
        }
    }

    /// One object, or a subresource of it.
    pub(crate) fn object(&self, namespace: Option<&str>, name: &str, subresource: Option<&str>) -> String {
        let mut path = format!("{}/{}", self.collection(namespace), segment(name));
        if let Some(subresource) = subresource {
            path.push('/');
            path.push_str(&segment(subresource));
        }
        path
    }
}

/// `/api/v1` or `/apis/G/V`
pub(crate) fn root(api_version: &str) -> String {
    let segments: Vec<String> = api_version.split('/').map(segment).collect();
    let prefix = if segments.len() == 1 { "/api/" } else { "/apis/" };
    prefix.to_owned() + &segments.join("/")
}

/// A path segment: nothing in a name can leave it.
pub(crate) fn segment(text: &str) -> String {
    escaped(text)
}

/// A query: `?a=b&c=d`.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        text.push(if text.is_empty() { '?' } else { '&' });
        let _ = write!(text, "{name}={}", escaped(value));
    }
    text
}

fn escaped(text: &str) -> String {
    // A segment of dots alone would walk up the path.
    let plain = |b: u8| {
        b.is_ascii_alphanumeric()
            || matches!(b, b'-' | b'_' | b'~')
            || (b == b'.' && text.trim_matches('.') != "")
    };
    text.bytes().fold(String::new(), |mut escaped, byte| {
        match plain(byte) {
            true => escaped.push(char::from(byte)),
            false => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_its_segment() {
        let machines = Resource {
            root: root("g/v1"),
            plural: "machines".into(),
            namespaced: true,
        };
        assert_eq!(
            machines.object(Some("a"), "m", Some("status")),
            "/apis/g/v1/namespaces/a/machines/m/status"
        );
        assert_eq!(
            machines.object(Some(".."), "a/b?c", None),
            "/apis/g/v1/namespaces/%2E%2E/machines/a%2Fb%3Fc"
        );
        assert_eq!(root("v1"), "/api/v1");
        assert_eq!(query(&[("fieldSelector", "a=b,c")]), "?fieldSelector=a%3Db%2Cc");
    }
}
