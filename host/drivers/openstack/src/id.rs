//! Checks ids and MAC addresses before they become part of a request.

use polity_driver_sdk::prelude::*;

/// The longest id. Usual ids of OpenStack have 36 characters; some flavors and images have longer ids.
const LONGEST: usize = 255;

/// Whether a text can be an id: one segment of a path without a special meaning (unlike `..`, `a/b`, `a?b`).
pub(crate) fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_plain) && text.bytes().any(|byte| byte != b'.')
}

/// An id from the arguments. A text that cannot be an id is answered with `not-found`.
pub(crate) fn given<'a>(id: &'a str, kind: &str) -> Result<&'a str, Failure> {
    if is_id(id) { Ok(id) } else { Err(missing(kind, id)) }
}

/// The failure of a read of something that does not exist.
pub(crate) fn missing(kind: &str, id: &str) -> Failure {
    let shown: String = id.chars().take(100).collect();
    failure(Code::NotFound, format!("there is no {kind} {shown:?}"))
}

/// A MAC address as neutron writes it, in lower case. `None` if the text is not a MAC address, or has only zeros.
pub(crate) fn mac(text: &str) -> Option<String> {
    let groups: Vec<&str> = text.split(':').collect();
    let is_group = |group: &&str| group.len() == 2 && group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_mac =
        groups.len() == 6 && groups.iter().all(is_group) && groups.iter().any(|group| *group != "00");
    is_mac.then(|| text.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_segment_of_a_path() {
        for id in ["7b1b6c1e-3c9b-4f0e-9f0a-000000000001", "m1.small", "a", "..a"] {
            assert!(is_id(id), "{id}");
        }
        let long = "a".repeat(256);
        for text in [
            "", ".", "..", "a/b", "../a", "a?b", "a#b", "a%2fb", "a b", "a\n", "ä", &long,
        ] {
            assert!(!is_id(text), "{text:?}");
            assert_eq!(given(text, "image").unwrap_err().code, Code::NotFound);
        }
    }

    #[test]
    fn a_mac_address_is_compared_in_lower_case() {
        assert_eq!(mac("FA:16:3e:00:00:0A").as_deref(), Some("fa:16:3e:00:00:0a"));
        for text in [
            "",
            "00:00:00:00:00:00",
            "fa:16:3e:00:00",
            "fa:16:3e:00:00:0g",
            "fa-16-3e-00-00-0a",
            "fa:16:3e:00:00:+1",
        ] {
            assert_eq!(mac(text), None, "{text}");
        }
    }
}
