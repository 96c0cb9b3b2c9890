//! Reads the manifest, the JSON in which a policy or a driver describes itself, within limits.

use polity_core::contract::Manifest;

/// The most objects and lists in a manifest. An empty one takes a few bytes of text but some hundred bytes in
/// the host. The largest definitions in use have some ten thousand.
const COMPOUNDS: usize = 50_000;
/// The largest manifest in bytes. API servers accept definitions of about this size.
pub(crate) const LARGEST: usize = 2 << 20;

/// The reason why a text is not a manifest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    #[error("the manifest does not follow wit/manifest.schema.json: {0}")]
    Shape(serde_json::Error),
    #[error("the manifest has {0} objects and lists; the limit is {COMPOUNDS}")]
    TooManyParts(usize),
    #[error("the manifest has {0} bytes; the limit is {LARGEST}")]
    TooLarge(usize),
    #[error("the manifest is not UTF-8")]
    NotText,
}

/// Reads the manifest of a policy.
pub(crate) fn read(text: &[u8]) -> Result<Manifest, ManifestError> {
    let text = within_limits(text)?;
    serde_json::from_str(text).map_err(ManifestError::Shape)
}

/// The text of a manifest, if it is no larger than a host can read.
pub(crate) fn within_limits(text: &[u8]) -> Result<&str, ManifestError> {
    if text.len() > LARGEST {
        return Err(ManifestError::TooLarge(text.len()));
    }
    let text = std::str::from_utf8(text).map_err(|_| ManifestError::NotText)?;
    // Braces inside texts are counted too. That can only refuse too much.
    let compounds = text.bytes().filter(|byte| matches!(byte, b'{' | b'['));
    match compounds.count() {
        count if count > COMPOUNDS => Err(ManifestError::TooManyParts(count)),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        read(text.as_bytes()).expect_err("it is none").to_string()
    }

    fn with(more: &str) -> String {
        format!(r#"{{"name": "p", "version": "1", "role": "lifecycle"{more}}}"#)
    }

    #[test]
    fn a_text_that_takes_the_host_hundred_times_its_size_is_refused() {
        let crd = |count: usize| with(&format!(r#", "crd": [{}0]"#, r#"{"":0},"#.repeat(count)));
        assert_eq!(
            refused(&crd(COMPOUNDS)),
            "the manifest has 50002 objects and lists; the limit is 50000"
        );
        read(crd(COMPOUNDS / 2).as_bytes()).expect("as many as large ones have");
        let long = with(&format!(r#", "finalizer": "{}""#, "x".repeat(LARGEST)));
        assert!(
            refused(&long).ends_with(" bytes; the limit is 2097152"),
            "{}",
            refused(&long)
        );
    }

    #[test]
    fn what_a_manifest_leaves_out_is_empty_and_what_nobody_knows_is_refused() {
        let manifest = read(with("").as_bytes()).expect("the least there is");
        assert!(manifest.needs.is_empty() && manifest.crd.is_none());
        for (more, said) in [
            (r#", "need": []"#, "unknown field `need`"),
            (r#", "needs": [{"permit": "x"}]"#, "unknown variant `permit`"),
            (r#", "edges": [{"id": "A"}]"#, "missing field `meaning`"),
            (
                r#", "governs": [{"apiVersion": "v1", "kind": "K", "namespace": "n"}]"#,
                "unknown field `namespace`",
            ),
            (
                r#", "needs": [{"objects": {"apiVersion": "v1", "kind": "K", "name": "n"}}]"#,
                "unknown field `name`",
            ),
            (
                r#", "needs": [{"delete": {"apiVersion": "v1", "kind": "K", "name": "n"}}]"#,
                "unknown field `name`",
            ),
        ] {
            let refused = refused(&with(more));
            assert!(refused.contains(said), "{refused}");
        }
        assert!(refused("[").contains("manifest.schema.json"), "{}", refused("["));
        assert_eq!(
            read(&[0xff]).expect_err("no text").to_string(),
            "the manifest is not UTF-8"
        );
    }
}
