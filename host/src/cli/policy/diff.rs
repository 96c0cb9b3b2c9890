//! `polity policy diff`: what another version of a policy needs, writes and stores otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use polity_core::contract::Manifest;
use polity_core::contract::merge::leaves;
use polity_core::merge::diff;
use polity_kube_rules::schema::{Dialect, compile};
use serde_json::{Map, Value, json};

use super::inspect::{line, list, need};
use super::load;
use crate::cli::recorded::{OBJECTS, RecordedPasses};
use crate::crds::{carried, defined};
use crate::display::{self, shortened};
use crate::progress::{Format, print_json, say};

/// The most characters of a value that a line shows.
const SHOWN: usize = 60;

/// Show what a new version of a policy needs, writes, can be configured with and stores otherwise than an old one.
///
/// With a recording, its objects are checked against the definitions of the new version: whether what is stored stays valid.
///
/// Exits 1 if a recorded object would not stay valid.
///
/// Example:
///
///   polity policy diff old.wasm ./my-policy --objects --recordings DIR
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Diff {
    /// The old version: a wasm file, or the folder of a crate, which cargo builds.
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The new version.
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Check the objects of a recording against the new definitions.
    #[arg(long)]
    objects: bool,
    #[command(flatten)]
    recorded: RecordedPasses,
}

/// What is different of one thing.
#[derive(Debug, Default, PartialEq)]
struct Changes {
    gone: Vec<String>,
    new: Vec<String>,
    changed: Vec<String>,
}

impl Diff {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let manifest = |path: &Path| anyhow::Ok(load(path, format)?.0.manifest().clone());
        let (old, new) = (manifest(&self.old)?, manifest(&self.new)?);
        if old.role != new.role {
            bail!(
                "{} has the role {}, and {} the role {}: they do not replace each other",
                old.name,
                old.role.as_str(),
                new.name,
                new.role.as_str()
            );
        }
        let changes = changes(&old, &new)?;
        let invalid = if self.objects {
            Some(self.invalid(&new, format)?)
        } else {
            None
        };
        match format {
            Format::Json => {
                let of = |(what, changes): &(&str, Changes)| {
                    let Changes { gone, new, changed } = changes;
                    (
                        (*what).to_owned(),
                        json!({"gone": gone, "new": new, "changed": changed}),
                    )
                };
                let mut document: Map<String, Value> = changes.iter().map(of).collect();
                document.insert("old".into(), json!(format!("{} {}", old.name, old.version)));
                document.insert("new".into(), json!(format!("{} {}", new.name, new.version)));
                if let Some((all, invalid)) = &invalid {
                    document.insert("objects".into(), json!({"checked": all, "invalid": invalid}));
                }
                print_json(&document);
            }
            Format::Text => {
                line("old", &format!("{} {}", old.name, old.version));
                line("new", &format!("{} {}", new.name, new.version));
                for (what, changes) in &changes {
                    list(what, changes.lines());
                }
                if let Some((all, invalid)) = &invalid {
                    line("objects", &format!("{} of {all} stay valid", all - invalid.len()));
                    list("invalid", invalid.clone());
                }
            }
        }
        let breaks = invalid.is_some_and(|(_, invalid)| !invalid.is_empty());
        Ok(ExitCode::from(u8::from(breaks)))
    }

    /// How many recorded objects there are of the kinds that the policy defines, and which of them would not be valid, and why.
    fn invalid(&self, new: &Manifest, format: Format) -> Result<(usize, Vec<String>)> {
        let mut schemas = BTreeMap::new();
        for (at, schema) in definitions(new)? {
            let compiled = compile(Dialect::Structural, &at, &schema);
            schemas.insert(at.clone(), compiled.map_err(|causes| anyhow!("{at}: {causes}"))?);
        }
        // Of each object, why it is not valid: the objects of a recording may be more than there is memory.
        let (mut last, mut left_out) = (BTreeMap::<(String, String), Option<String>>::new(), 0_u64);
        self.recorded.passes(format, |pass, _| {
            let at = format!("{} {}", pass.kind.api_version, pass.kind.kind);
            let object = pass
                .object
                .as_ref()
                .and_then(|object| serde_json::from_str::<Value>(object).ok());
            let Some((schema, object)) = schemas.get(&at).zip(object) else {
                return;
            };
            let name = (at, pass.key.to_string());
            if last.len() < OBJECTS || last.contains_key(&name) {
                let cause = schema.first_error(&object);
                last.insert(
                    name,
                    cause.map(|cause| shortened(&cause.to_string(), display::SHOWN)),
                );
            } else {
                left_out += 1;
            }
        })?;
        if left_out > 0 {
            let message = format!("{left_out} passes left out: there are more than {OBJECTS} objects");
            say(format, &message);
        }
        let wrong = last.iter().filter_map(|((at, name), cause)| {
            let cause = cause.as_ref()?;
            Some(format!("{at} {name}: {cause}"))
        });
        Ok((last.len(), wrong.collect()))
    }
}

/// What is different, thing by thing.
fn changes(old: &Manifest, new: &Manifest) -> Result<Vec<(&'static str, Changes)>> {
    let both = |of: &dyn Fn(&Manifest) -> Vec<String>| Changes::of_lists(of(old), of(new));
    let edges = |manifest: &Manifest| manifest.edges.iter().map(|edge| edge.id.clone()).collect();
    let mut all = vec![
        (
            "needs",
            both(&|manifest| manifest.needs.iter().map(need).collect()),
        ),
        ("writes", both(&|manifest| manifest.writes.clone())),
        (
            "finalizer",
            both(&|manifest| manifest.finalizer.iter().cloned().collect()),
        ),
        ("edges", both(&edges)),
        (
            "configuration",
            Changes::of_trees("", &old.config_schema, &new.config_schema),
        ),
    ];
    let (was, now) = (definitions(old)?, definitions(new)?);
    let mut definitions = Changes::of_lists(was.keys().cloned().collect(), now.keys().cloned().collect());
    for (at, was) in &was {
        if let Some(now) = now.get(at) {
            definitions.extend(Changes::of_trees(&format!("{at} "), was, now));
        }
    }
    all.push(("definitions", definitions));
    Ok(all)
}

/// The schemas of the kinds that a policy defines, by version and kind.
fn definitions(manifest: &Manifest) -> Result<BTreeMap<String, Value>> {
    let crds = carried(manifest).map_err(|why| anyhow!("{}: {why}", manifest.name))?;
    let mut all = BTreeMap::new();
    for crd in &crds {
        let (group, kind) = defined(crd);
        for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
            let name = version["name"].as_str().unwrap_or_default();
            let schema = version["schema"]["openAPIV3Schema"].clone();
            all.insert(format!("{group}/{name} {kind}"), schema);
        }
    }
    Ok(all)
}

impl Changes {
    fn of_lists(old: Vec<String>, new: Vec<String>) -> Self {
        let [old, new] = [old, new].map(|all| all.into_iter().collect::<BTreeSet<String>>());
        Changes {
            gone: old.difference(&new).cloned().collect(),
            new: new.difference(&old).cloned().collect(),
            changed: Vec::new(),
        }
    }

    /// The fields of two schemas, but for their descriptions.
    fn of_trees(at: &str, old: &Value, new: &Value) -> Self {
        let (old, new) = (without_words(old), without_words(new));
        let mut changes = Changes::default();
        let patch = diff(&old, &new).unwrap_or_else(|| json!({}));
        leaves("", &patch, Some(&old), &mut |leaf| {
            let path = format!("{at}{}", field(&leaf.path));
            match (leaf.base, leaf.wanted.as_deref()) {
                (None, Some(Value::Object(_))) => changes.new.push(path),
                (Some(Value::Object(_)), None) => changes.gone.push(path),
                (was, now) => {
                    let shown = |value: Option<&Value>| {
                        value.map_or_else(|| "nothing".into(), |value| shortened(&value.to_string(), SHOWN))
                    };
                    changes
                        .changed
                        .push(format!("{path}: {} → {}", shown(was), shown(now)));
                }
            }
        });
        changes
    }

    fn extend(&mut self, other: Changes) {
        self.gone.extend(other.gone);
        self.new.extend(other.new);
        self.changed.extend(other.changed);
    }

    fn lines(&self) -> Vec<String> {
        let marked = |mark: &'static str| move |text: &String| format!("{mark} {text}");
        let gone = self.gone.iter().map(marked("no longer"));
        let new = self.new.iter().map(marked("new:"));
        gone.chain(new).chain(self.changed.iter().cloned()).collect()
    }
}

/// A path in a schema as the path of the field that it describes.
fn field(path: &str) -> String {
    let parts = path.split('.').filter(|part| *part != "properties");
    parts.collect::<Vec<_>>().join(".")
}

/// A schema without descriptions. Fields may be called so, too, and have schemas that are no texts.
fn without_words(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let is_kept = |(name, value): &(&String, &Value)| *name != "description" || !value.is_string();
            let fields = fields.iter().filter(is_kept);
            Value::Object(
                fields
                    .map(|(name, value)| (name.clone(), without_words(value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(without_words).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(change: impl FnOnce(&mut Value)) -> Manifest {
        let mut manifest = json!({
            "name": "machines", "version": "1", "role": "lifecycle", "needs": [{"cloud": "vm.get"}],
            "writes": ["status"], "finalizer": "example.org/x", "edges": [{"id": "A", "meaning": "a"}],
            "configSchema": {"properties": {"period": {"type": "string", "default": "20s", "description": "How often."}}},
            "crd": {
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "machines.example.org"},
                "spec": {"group": "example.org", "names": {"kind": "Machine", "plural": "machines"}, "versions": [{
                    "name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": {"type": "object", "properties": {"cpus": {"type": "integer"}}}}}},
                }]},
            },
        });
        change(&mut manifest);
        serde_json::from_value(manifest).expect("a manifest")
    }

    fn told(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let changes = changes(&manifest(|_| {}), &manifest(change)).expect("definitions");
        let lines = changes.into_iter().flat_map(|(what, changes)| {
            let lines = changes.lines().into_iter();
            lines
                .map(move |line| format!("{what} {line}"))
                .collect::<Vec<_>>()
        });
        lines.collect()
    }

    #[test]
    fn each_change_of_a_manifest_is_told_and_words_are_none() {
        const SPEC: &str = "/crd/spec/versions/0/schema/openAPIV3Schema/properties/spec";
        assert_eq!(
            told(|it| it["configSchema"]["properties"]["period"]["description"] = "Now and then.".into()),
            [""; 0]
        );
        assert_eq!(
            told(|it| it["needs"] = json!([{"cloud": "vm.clone"}])),
            ["needs no longer cloud vm.get", "needs new: cloud vm.clone"]
        );
        assert_eq!(
            told(|it| it["writes"] = json!(["status", "spec"])),
            ["writes new: spec"]
        );
        assert_eq!(
            told(|it| it["finalizer"] = "example.org/y".into()),
            [
                "finalizer no longer example.org/x",
                "finalizer new: example.org/y"
            ]
        );
        assert_eq!(
            told(|it| it["configSchema"]["properties"]["period"]["default"] = "60s".into()),
            [r#"configuration period.default: "20s" → "60s""#]
        );
        assert_eq!(
            told(|it| it["configSchema"]["properties"]["resync"] = json!({"type": "string"})),
            [r#"configuration resync.type: nothing → "string""#]
        );
        assert_eq!(
            told(|it| it.pointer_mut(SPEC).expect("it")["required"] = json!(["cpus"])),
            [r#"definitions example.org/v1 Machine spec.required: nothing → ["cpus"]"#]
        );
        assert_eq!(
            told(|it| it.pointer_mut(SPEC).expect("it")["properties"]["cpus"] = json!({"type": "string"})),
            [r#"definitions example.org/v1 Machine spec.cpus.type: "integer" → "string""#]
        );
    }
}
