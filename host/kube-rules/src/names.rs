//! The form of names: of objects, labels, annotations and finalizers (apimachinery `util/validation`).
//!
//! Each function `…_problem` returns an error in the words of a real API server, or `None` if the name is
//! valid. Whether a name is taken or reserved is not decided here.

/// The longest DNS-1123 subdomain, in bytes: the longest name of an object.
pub const LONGEST_SUBDOMAIN: usize = 253;
/// The longest DNS-1123 label, label value, or name behind a prefix, in bytes.
pub const LONGEST_LABEL: usize = 63;

/// The error if a text is no DNS-1123 label, such as the name of a namespace.
pub fn dns_label_problem(text: &str) -> Option<&'static str> {
    if text.len() > LONGEST_LABEL {
        return Some("must be no more than 63 bytes");
    }
    (!has_label_form(text)).then_some(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
         and must start and end with an alphanumeric character",
    )
}

/// The error if a text is no DNS-1123 subdomain, such as the names of most objects. Its parts may have any
/// length.
pub fn dns_subdomain_problem(text: &str) -> Option<&'static str> {
    if text.len() > LONGEST_SUBDOMAIN {
        return Some("must be no more than 253 bytes");
    }
    (!text.split('.').all(has_label_form)).then_some(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
         and must start and end with an alphanumeric character",
    )
}

/// The error if a text is no qualified name, `[prefix/]name`, such as the key of a label or a finalizer.
pub fn qualified_name_problem(text: &str) -> Option<&'static str> {
    let (prefix, name) = text
        .split_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let is_good = name.len() <= LONGEST_LABEL
        && has_name_form(name)
        && prefix.is_none_or(|prefix| dns_subdomain_problem(prefix).is_none());
    (!is_good).then_some(
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
         alphanumeric character, with an optional DNS subdomain prefix and '/'",
    )
}

/// The error if a text is no key of an annotation: a qualified name in upper or lower case.
pub fn annotation_key_problem(text: &str) -> Option<&'static str> {
    qualified_name_problem(&text.to_lowercase())
}

/// The error if a text is no value of a label.
pub fn label_value_problem(text: &str) -> Option<&'static str> {
    let is_good = text.is_empty() || (text.len() <= LONGEST_LABEL && has_name_form(text));
    (!is_good).then_some(
        "a valid label must be an empty string or at most 63 alphanumeric characters, '-', '_' or '.', and must start \
         and end with an alphanumeric character",
    )
}

/// Whether a text can be one segment of a request path and stays one segment: apimachinery
/// `IsValidPathSegmentName`, and no control characters.
pub fn is_path_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..") && !text.contains(|c: char| matches!(c, '/' | '%') || c.is_control())
}

/// Whether a name from outside is safe in a path, a message or a selector, whatever kind it belongs to. All
/// names in Kubernetes are, including those of roles (`system:node`).
pub fn is_wellformed(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    is_path_segment(name) && name.len() <= LONGEST_SUBDOMAIN && name.bytes().all(is_plain)
}

fn has_label_form(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn has_name_form(text: &str) -> bool {
    let edge = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    bytes.iter().all(|byte| edge(byte) || b"-_.".contains(byte))
        && bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_dns_subdomain() {
        for good in ["a", "a-b.c", "0a", &"a".repeat(253)] {
            assert_eq!(dns_subdomain_problem(good), None, "{good}");
        }
        for bad in [
            "",
            "..",
            "a/b",
            "A",
            "-a",
            "a-",
            "a..b",
            "a\0",
            "a\u{1b}[2J",
            &"a".repeat(254),
        ] {
            assert!(dns_subdomain_problem(bad).is_some(), "{bad:?}");
        }
    }

    #[test]
    fn a_label_has_no_dots_and_63_bytes() {
        assert_eq!(dns_label_problem(&"a".repeat(63)), None);
        assert!(dns_label_problem("a.b").is_some());
        assert!(dns_label_problem(&"a".repeat(64)).is_some());
    }

    #[test]
    fn a_qualified_name_has_one_prefix_at_most() {
        let long = "a".repeat(64);
        for good in ["a", "A_b.c", "polity.dev/x", "foregroundDeletion"] {
            assert_eq!(qualified_name_problem(good), None, "{good}");
        }
        for bad in [
            "",
            "-",
            "a/b/c",
            "/a",
            "a/",
            "A/b",
            "a b",
            "no spaces",
            "-a",
            "ä",
            &long,
        ] {
            assert!(qualified_name_problem(bad).is_some(), "{bad}");
        }
        assert_eq!(annotation_key_problem("Example.com/X"), None);
    }

    #[test]
    fn the_value_of_a_label_may_be_empty() {
        for (value, good) in [("", true), ("A_b.c", true), ("not ok", false), ("a-", false)] {
            assert_eq!(label_value_problem(value).is_none(), good, "{value}");
        }
    }

    #[test]
    fn no_wellformed_name_reaches_outside_what_it_names() {
        for good in ["a", "a.b", "system:node", "A_b"] {
            assert!(is_wellformed(good), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "", ".", "..", "a/b", "a%2fb", "a\n", "a b", "a,b", "a=b", "ä", &long,
        ] {
            assert!(!is_wellformed(bad), "{bad}");
        }
        assert!(is_path_segment("a b") && !is_path_segment("a%2fb") && !is_path_segment("a\u{9b}"));
    }
}
