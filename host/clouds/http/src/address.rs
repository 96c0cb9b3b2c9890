//! Addresses of servers, and the URLs of requests to them.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

/// The base of an endpoint: `https://keystone.example:5000/v3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end.
    path: String,
}

/// Why a text is not the address of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is not the address of an endpoint, like https://HOST:PORT/PATH: {why}")]
pub struct BadAddress {
    url: String,
    why: &'static str,
}

impl Address {
    /// Reads `http://HOST[:PORT][/PATH]` or `https://…`.
    ///
    /// # Errors
    /// The text has a user, a query or a fragment, or is not a URL.
    pub fn read(url: &str) -> Result<Self, BadAddress> {
        let bad = |why| BadAddress {
            url: url.chars().take(200).collect(),
            why,
        };
        if url.contains('#') {
            return Err(bad("it has a fragment"));
        }
        let uri: Uri = url.parse().map_err(|_| bad("it is no URL"))?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err(bad("it has no scheme or no host"));
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(bad("its scheme is neither http nor https"));
        }
        if authority.as_str().contains('@') {
            return Err(bad("it has a user"));
        }
        let path = parts.path_and_query.unwrap_or(PathAndQuery::from_static("/"));
        if path.query().is_some() {
            return Err(bad("it has a query"));
        }
        Ok(Address {
            scheme,
            authority,
            path: path.path().trim_end_matches('/').to_owned(),
        })
    }

    /// The address of an appliance: a port of an IP address, without TLS.
    pub fn of_ip(ip: IpAddr, port: u16) -> Result<Self, BadAddress> {
        let url = match ip {
            IpAddr::V4(ip) => format!("http://{ip}:{port}"),
            IpAddr::V6(ip) => format!("http://[{ip}]:{port}"),
        };
        Address::read(&url)
    }

    /// The host, with the port if the address names one. This is the header `host`.
    pub fn host(&self) -> &str {
        self.authority.as_str()
    }

    /// The host without a port; an IPv6 address has its brackets.
    pub fn name(&self) -> &str {
        self.authority.host()
    }

    /// The path of a request below this address, with each segment encoded.
    pub fn path(&self, segments: &[String]) -> String {
        let mut path = self.path.clone();
        for segment in segments {
            path.push('/');
            encode(segment, &mut path);
        }
        if path.is_empty() { "/".to_owned() } else { path }
    }

    /// The address without the last segment of its path, and that segment; `None` if it has no path.
    pub(crate) fn parent(&self) -> Option<(Address, &str)> {
        let (path, last) = self.path.rsplit_once('/')?;
        let parent = Address {
            path: path.trim_end_matches('/').to_owned(),
            ..self.clone()
        };
        Some((parent, last))
    }

    /// The whole URL of a request.
    pub fn uri(&self, path: &str, query: &str) -> Result<Uri, BadAddress> {
        let joint = if query.is_empty() { "" } else { "?" };
        let text = format!("{}://{}{path}{joint}{query}", self.scheme, self.authority);
        text.parse().map_err(|_| BadAddress {
            url: text,
            why: "it is too long",
        })
    }

    /// The address as it was read.
    pub fn as_text(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.path)
    }
}

/// The pairs of a query, encoded, in their order.
pub(crate) fn query(pairs: &[(String, String)]) -> String {
    let mut query = String::new();
    for (name, value) in pairs {
        if !query.is_empty() {
            query.push('&');
        }
        encode(name, &mut query);
        query.push('=');
        encode(value, &mut query);
    }
    query
}

/// Encodes every byte except letters, digits and `-_.~`. The segments `.` and `..` would lead to another path, so their dots
/// are encoded too.
fn encode(text: &str, out: &mut String) {
    let leads_up = text == "." || text == "..";
    for byte in text.bytes() {
        match byte {
            b'.' if leads_up => out.push_str("%2E"),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(path: &[&str]) -> Vec<String> {
        path.iter().map(|segment| (*segment).to_owned()).collect()
    }

    #[test]
    fn a_segment_never_leads_elsewhere() {
        let address = Address::read("https://nova.example:8774/v2.1/").expect("an address");
        for (path, uri) in [
            (
                vec!["servers", "a b"],
                "https://nova.example:8774/v2.1/servers/a%20b",
            ),
            (vec!["..", "admin"], "https://nova.example:8774/v2.1/%2E%2E/admin"),
            (
                vec!["a/../b?x#y"],
                "https://nova.example:8774/v2.1/a%2F..%2Fb%3Fx%23y",
            ),
            (vec!["ä\r\n"], "https://nova.example:8774/v2.1/%C3%A4%0D%0A"),
            (vec![], "https://nova.example:8774/v2.1"),
        ] {
            let made = address.uri(&address.path(&segments(&path)), "").expect("a URI");
            assert_eq!(made.to_string(), uri);
        }
        assert_eq!(
            query(&[("a&".into(), "b=c".into()), ("d".into(), String::new())]),
            "a%26=b%3Dc&d="
        );
    }

    #[test]
    fn what_is_no_address_of_an_endpoint_says_why() {
        for (url, why) in [
            ("ftp://a", "its scheme is neither http nor https"),
            ("https://user:secret@a/", "it has a user"),
            ("https://a/?x", "it has a query"),
            ("https://a/#x", "it has a fragment"),
            ("/path", "it has no scheme or no host"),
            ("https://", "it is no URL"),
        ] {
            assert_eq!(Address::read(url).map_err(|bad| bad.why), Err(why), "{url}");
        }
        let ip = "fd00::1".parse().expect("an IP address");
        assert_eq!(
            Address::of_ip(ip, 5000).expect("an address").as_text(),
            "http://[fd00::1]:5000"
        );
    }
}
