//! Versions: which texts are versions, and their releases of Kubernetes.

use std::fmt;
use std::str::FromStr;

/// The most bytes of a version.
const LONGEST: usize = 128;

/// Whether a text can be the version of a Debian package: it begins with a digit and contains nothing that has a
/// meaning in a shell.
pub fn is_version(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b".+:~-".contains(&byte);
    text.len() <= LONGEST && text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(known)
}

/// Whether a text can be the name of a package in a Node's annotation. Source: Debian Policy 5.6.1, RFC 1123.
pub fn is_package(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    (2..=63).contains(&text.len())
        && bytes.iter().copied().all(known)
        && edge(bytes.first().copied())
        && edge(bytes.last().copied())
        && !text.contains("..")
        && !text.contains(".-")
        && !text.contains("-.")
}

/// A release of Kubernetes: `1.30.2`, without the suffixes of its packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// `1`
    pub major: u32,
    /// `30`
    pub minor: u32,
    /// `2`
    pub patch: u32,
}

/// The error for a text that names no release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRelease;

impl FromStr for Release {
    type Err = NoRelease;

    fn from_str(text: &str) -> Result<Self, NoRelease> {
        if !is_version(text) {
            return Err(NoRelease);
        }
        let numbers = text.split(['-', '+', '~']).next().unwrap_or_default();
        let mut numbers = numbers.split('.').map(|part| part.parse().ok());
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Some(major)), Some(Some(minor)), Some(Some(patch)), None) => {
                Ok(Release { major, minor, patch })
            }
            _ => Err(NoRelease),
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Why there is no next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoStep {
    /// A node has a later minor version already, and no version goes back.
    Backwards(Release),
    /// The next minor version has no known release.
    Unknown(Release),
}

/// The next step from the releases of the nodes to the wanted release. It is the wanted release, or, if that is more
/// than one minor version ahead of the lowest, the newest known release of the next minor version. All nodes finish a
/// step before any node begins the next one.
pub fn next_step<'a>(
    have: &[Release],
    wanted: &'a str,
    known: impl IntoIterator<Item = &'a String>,
) -> Result<&'a str, NoStep> {
    let target = wanted.parse().unwrap_or(Release {
        major: 0,
        minor: 0,
        patch: 0,
    });
    let (Some(low), Some(high)) = (have.iter().min(), have.iter().max()) else {
        return Ok(wanted);
    };
    if (target.major, target.minor) < (high.major, high.minor) {
        return Err(NoStep::Backwards(*high));
    }
    if target.major == low.major && target.minor - low.minor < 2 {
        return Ok(wanted);
    }
    let known = known
        .into_iter()
        .filter_map(|known| Some((known.parse::<Release>().ok()?, known)));
    let between = known.filter(|(known, _)| (known.major, known.minor) == (low.major, low.minor + 1));
    between
        .max()
        .map(|(_, known)| known.as_str())
        .ok_or(NoStep::Unknown(*low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_package_adds_does_not_count() {
        for text in ["1.30.2", "1.30.2-1.1", "1.30.2+deb12", "1.30.2~rc1"] {
            let release: Release = text.parse().unwrap();
            assert_eq!(release.to_string(), "1.30.2", "{text}");
        }
        let release = |text: &str| text.parse::<Release>().unwrap();
        assert!(release("1.9.11") < release("1.10.0"));
    }

    #[test]
    fn garbage_is_no_version() {
        for text in [
            "",
            "banana",
            "v1.30.2",
            "1.30.2; reboot",
            "1.30.2\n",
            "$(id)",
            "-1.30.2",
            "1.30.2 ",
        ] {
            assert!(!is_version(text), "{text:?}");
            assert!(text.parse::<Release>().is_err(), "{text:?}");
        }
        for text in ["1", "1.30", "1.30.2.4", "1.x.2"] {
            assert!(is_version(text) && text.parse::<Release>().is_err(), "{text:?}");
        }
        assert!(!is_version(&"1".repeat(129)));
    }

    #[test]
    fn a_package_is_part_of_an_annotation_s_name() {
        for text in ["kubelet", "linux-image-6.1", "containerd.io", "7zip"] {
            assert!(is_package(text), "{text:?}");
        }
        for text in [
            "", "k", "Kubelet", "g++", "-kubelet", "kubelet-", "a/b", "a..b", "a.-b",
        ] {
            assert!(!is_package(text), "{text:?}");
        }
    }

    fn step(have: &[&str], wanted: &str) -> Result<String, NoStep> {
        let have: Vec<Release> = have.iter().map(|text| text.parse().unwrap()).collect();
        let known = ["1.28.3", "1.28.15", "1.29.15"].map(str::to_owned);
        next_step(&have, wanted, &known).map(str::to_owned)
    }

    #[test]
    fn a_cluster_climbs_one_minor_version_at_a_time() {
        for (have, wanted, next) in [
            (&[][..], "1.30.2", "1.30.2"),
            (&["1.30.2"], "1.30.2", "1.30.2"),
            (&["1.29.4", "1.30.2"], "1.30.2", "1.30.2"),
            (&["1.28.4", "1.28.4"], "1.30.2", "1.29.15"),
            (&["1.27.16", "1.28.15"], "1.30.2", "1.28.15"),
        ] {
            assert_eq!(step(have, wanted).as_deref(), Ok(next), "{have:?}");
        }
        assert_eq!(
            step(&["1.30.2"], "1.32.0"),
            Err(NoStep::Unknown("1.30.2".parse().unwrap()))
        );
        assert_eq!(
            step(&["1.30.2"], "2.0.0"),
            Err(NoStep::Unknown("1.30.2".parse().unwrap()))
        );
    }

    #[test]
    fn a_patch_goes_back_and_a_minor_version_does_not() {
        assert_eq!(step(&["1.30.4"], "1.30.2").as_deref(), Ok("1.30.2"));
        for have in [&["1.31.0"][..], &["1.30.2", "1.31.0"]] {
            assert_eq!(
                step(have, "1.30.2"),
                Err(NoStep::Backwards("1.31.0".parse().unwrap()))
            );
        }
    }
}
