//! The provider ID of a machine: `aws:///eu-central-1a/i-0123456789abcdef0`, the same as in its node.

use std::fmt;

/// A provider ID. Each ID has exactly one spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderId<'a> {
    /// The availability zone.
    pub(crate) zone: &'a str,
    /// The id of the instance.
    pub(crate) instance: &'a str,
}

impl<'a> ProviderId<'a> {
    /// Reads a provider ID; `None` if the text is not a provider ID of EC2.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (zone, instance) = text.strip_prefix("aws:///")?.split_once('/')?;
        (is_zone(zone) && is_instance(instance)).then_some(ProviderId { zone, instance })
    }
}

impl fmt::Display for ProviderId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aws:///{}/{}", self.zone, self.instance)
    }
}

/// Whether this is the name of a zone: `eu-central-1a`, `us-west-2-lax-1a`.
pub(crate) fn is_zone(text: &str) -> bool {
    let is_one = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.len() <= 64 && text.bytes().all(is_one)
}

/// Whether this is the id of an instance: `i-` and 8 or 17 hexadecimal digits.
pub(crate) fn is_instance(text: &str) -> bool {
    let is_one = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let digits = text.strip_prefix("i-").unwrap_or_default();
    [8, 17].contains(&digits.len()) && digits.bytes().all(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_and_written_alike() {
        for text in [
            "aws:///eu-central-1a/i-0123456789abcdef0",
            "aws:///us-west-2-lax-1a/i-01234567",
        ] {
            let id = ProviderId::parse(text).unwrap();
            assert_eq!(id.to_string(), text);
        }
    }

    #[test]
    fn an_id_of_another_spelling_is_none() {
        for text in [
            "",
            "i-0123456789abcdef0",
            "aws:///i-0123456789abcdef0",
            "aws:////i-0123456789abcdef0",
            "aws://eu-central-1a/i-0123456789abcdef0",
            "AWS:///eu-central-1a/i-0123456789abcdef0",
            "aws:///eu-central-1a/i-0123456789ABCDEF0",
            "aws:///eu-central-1a/i-0123456789abcdef0/",
            "aws:///eu-central-1a/x/i-0123456789abcdef0",
            "aws:///eu-central-1a/i-0123456789abcdef0 ",
            "aws:///eu-central-1a/i-",
            "aws:///eu-central-1a/i-*",
            "aws:///eu-central-1a/i-0123456789abcdef0123",
            "aws:///eu central/i-0123456789abcdef0",
            "sim:///vm-1",
        ] {
            assert_eq!(ProviderId::parse(text), None, "{text}");
        }
    }
}
