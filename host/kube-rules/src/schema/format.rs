//! The `format`s of strings that are checked; others are annotations, as in a real API server.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{Timestamp, civil::Date};

use super::Dialect;

/// A format that is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Format {
    Int32,
    Int64,
    /// Another integer type of Rust: its name and its range.
    Integer(&'static str, f64, f64),
    Byte,
    Date,
    DateTime,
    Uuid,
    Ipv4,
    Ipv6,
    Cidr,
}

impl Format {
    /// None for a format that is not checked.
    pub(super) fn named(dialect: Dialect, name: &str) -> Option<Self> {
        match dialect {
            Dialect::Structural => Self::of_crds(name),
            Dialect::Json => Self::integer(name).or_else(|| Self::of_crds(name)),
        }
    }

    /// The integer types that a real API server does not know.
    fn integer(name: &str) -> Option<Self> {
        Some(match name {
            "int8" => Self::Integer("int8", f64::from(i8::MIN), f64::from(i8::MAX)),
            "int16" => Self::Integer("int16", f64::from(i16::MIN), f64::from(i16::MAX)),
            "uint8" => Self::Integer("uint8", 0.0, f64::from(u8::MAX)),
            "uint16" => Self::Integer("uint16", 0.0, f64::from(u16::MAX)),
            "uint32" => Self::Integer("uint32", 0.0, f64::from(u32::MAX)),
            "uint64" | "uint" => Self::Integer("uint64", 0.0, 18_446_744_073_709_551_615.0),
            _ => return None,
        })
    }

    fn of_crds(name: &str) -> Option<Self> {
        Some(match name {
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "byte" => Self::Byte,
            "date" => Self::Date,
            "date-time" | "datetime" => Self::DateTime,
            "uuid" | "uuid3" | "uuid4" | "uuid5" => Self::Uuid,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            _ => return None,
        })
    }

    /// As it is written in a schema.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Integer(name, ..) => name,
            Self::Byte => "byte",
            Self::Date => "date",
            Self::DateTime => "date-time",
            Self::Uuid => "uuid",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Cidr => "cidr",
        }
    }

    /// Whether a string has this format; the formats of numbers say nothing about strings.
    pub(super) fn matches(self, text: &str) -> bool {
        match self {
            Self::Int32 | Self::Int64 | Self::Integer(..) => true,
            Self::Byte => STANDARD.decode(text).is_ok(),
            Self::Date => text.parse::<Date>().is_ok() && text.len() == 10,
            Self::DateTime => text.contains(['T', 't']) && text.parse::<Timestamp>().is_ok(),
            Self::Uuid => is_uuid(text),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => is_cidr(text),
        }
    }

    /// Whether a whole number is inside this format's range.
    pub(super) fn holds(self, number: f64) -> bool {
        match self {
            Self::Int32 => (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number),
            Self::Integer(_, least, most) => (least..=most).contains(&number),
            _ => true,
        }
    }
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts
            .iter()
            .all(|part| part.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let Ok(bits) = bits.parse::<u8>() else {
        return false;
    };
    (address.parse::<Ipv4Addr>().is_ok() && bits <= 32)
        || (address.parse::<Ipv6Addr>().is_ok() && bits <= 128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_tell_good_from_bad() {
        for (format, good, bad) in [
            (Format::Byte, "aGVsbG8=", "???"),
            (Format::Date, "2026-11-20", "2026-11-20T08:00:00Z"),
            (Format::DateTime, "2026-11-20T08:00:00Z", "2026-11-20"),
            (Format::Uuid, "7c9e6679-7425-40de-944b-e07fc1f90ae7", "7c9e6679"),
            (Format::Ipv4, "10.0.0.1", "10.0.0.256"),
            (Format::Ipv6, "fe80::1", "10.0.0.1"),
            (Format::Cidr, "10.0.0.0/8", "10.0.0.0/33"),
        ] {
            assert!(format.matches(good), "{good} is a {}", format.name());
            assert!(!format.matches(bad), "{bad} is no {}", format.name());
        }
    }
}
