//! Checks the configurations of policies against the schemas that policies bring. A schema is untrusted.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use jsonschema::PatternOptions;
use polity_core::contract::{Manifest, with_defaults};
use polity_sandbox::{Bounds, Compiler};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::display::{hex, shortened};
use crate::policies::Policies;
use crate::single_flight::Ended;

/// The limits of one check. The schemas of the shipped policies take some milliseconds.
const BOUNDS: Bounds = Bounds {
    processor: Duration::from_secs(2),
    memory: 512 << 20,
    answer: 64 << 10,
};
/// The most errors that are reported at once.
const MISTAKES: usize = 20;
/// The most characters of one error, which may quote the configuration.
const MISTAKE: usize = 500;

/// The configuration after the policy's schema has checked it and filled in defaults. The error is a
/// [`crate::single_flight::Later`] if the check did not end within its limits.
pub(crate) fn configuration(
    policies: &Policies,
    manifest: &Manifest,
    given: Option<&Value>,
) -> Result<Value> {
    let config = with_defaults(&manifest.config_schema, given);
    let input = json!({"schema": manifest.config_schema, "configuration": config}).to_string();
    let work = format!("configuration {}", hex(&Sha256::digest(&input)));
    let name = shortened(&manifest.name, MISTAKE);
    policies.single_flight().run(&work, |_| {
        let checked = match policies.compiler() {
            #[cfg(feature = "simulation")]
            Compiler::InProcess => in_process(&input),
            Compiler::Child(confined) => confined.run(&["configuration"], input.as_bytes(), BOUNDS),
        };
        match checked {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(wrong)) => Err(Ended::Refused(anyhow!("{wrong}"))),
            Err(stopped) => Err(Ended::Stopped(format!(
                "the schema of {name} cannot be evaluated: {stopped}"
            ))),
        }
    })?;
    Ok(config)
}

/// Checks on a thread, which is left behind if it takes too long.
#[cfg(feature = "simulation")]
fn in_process(input: &str) -> Result<Result<Vec<u8>, String>, polity_sandbox::Stopped> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let input = input.as_bytes().to_vec();
    std::thread::spawn(move || sender.send(check(&input)));
    let checked = receiver.recv_timeout(BOUNDS.processor);
    checked.map_err(|_| polity_sandbox::Stopped::Time(BOUNDS.processor))
}

/// The confined process: reads a schema and a configuration, and writes the configuration's errors or
/// nothing.
pub(crate) fn answer(bounds: Bounds) -> ExitCode {
    polity_sandbox::answer_confined(bounds, |input| check(&input))
}

fn check(input: &[u8]) -> Result<Vec<u8>, String> {
    let input: Value = serde_json::from_slice(input).map_err(|e| e.to_string())?;
    let (schema, config) = (&input["schema"], &input["configuration"]);
    let validator = jsonschema::options()
        .with_retriever(Nowhere)
        // These patterns take time linear in the text. Others can take exponential time.
        .with_pattern_options(PatternOptions::regex())
        .build(schema)
        .map_err(|e| shortened(&format!("its schema is not valid: {e}"), MISTAKE))?;
    let wrong: Vec<String> = validator
        .iter_errors(config)
        .take(MISTAKES)
        .map(|e| {
            let path = e.instance_path().to_string();
            let wrong = match path.trim_start_matches('/').replace('/', ".") {
                path if path.is_empty() => e.to_string(),
                path => format!("{path}: {e}"),
            };
            shortened(&wrong, MISTAKE)
        })
        .collect();
    match wrong.is_empty() {
        true => Ok(Vec::new()),
        false => Err(wrong.join("; ")),
    }
}

/// Resolves no reference outside the schema: nothing is fetched and no file is read for a policy.
struct Nowhere;

impl jsonschema::Retrieve for Nowhere {
    fn retrieve(
        &self,
        uri: &jsonschema::Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("{uri} is not part of it").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(schema: &Value, configuration: &Value) -> Result<(), String> {
        let input = json!({"schema": schema, "configuration": configuration}).to_string();
        check(input.as_bytes()).map(|nothing| assert!(nothing.is_empty()))
    }

    #[test]
    fn what_is_wrong_is_said_with_its_path() {
        let schema = json!({"properties": {"a": {"properties": {"b": {"type": "integer"}}}}});
        assert_eq!(checked(&schema, &json!({"a": {"b": 1}})), Ok(()));
        let wrong = checked(&schema, &json!({"a": {"b": "x"}})).expect_err("no integer");
        assert!(wrong.starts_with("a.b: "), "{wrong}");
        let wrong = checked(&json!({"type": "object"}), &json!("x")).expect_err("no object");
        assert!(wrong.starts_with(r#""x" is not"#), "{wrong}");
    }

    #[test]
    fn a_schema_names_no_file_and_no_address() {
        for reference in [
            "file:///etc/passwd",
            "http://127.0.0.1:1/schema",
            "https://example.com/schema",
            "/etc/passwd",
            "other.json",
        ] {
            let wrong = checked(&json!({"$ref": reference}), &json!({})).expect_err("it names another");
            assert!(wrong.contains("is not valid"), "{reference}: {wrong}");
            assert!(!wrong.contains("root:"), "{reference}: {wrong}");
        }
    }

    #[test]
    fn a_pattern_takes_no_longer_than_its_text() {
        let schema = json!({"properties": {"a": {"type": "string", "pattern": "^(a|a|aa)*(a*)*b$"}}});
        let wrong = checked(&schema, &json!({"a": "a".repeat(10_000)})).expect_err("there is no b");
        assert!(wrong.starts_with("a: "), "{wrong}");
    }

    #[test]
    fn very_many_mistakes_are_not_all_said() {
        let schema = json!({"items": {"type": "string"}});
        let wrong = checked(&schema, &json!(vec![0; 100_000])).expect_err("no texts");
        assert!(
            wrong.len() <= MISTAKES * (4 * MISTAKE + 8),
            "{} bytes",
            wrong.len()
        );
    }
}
