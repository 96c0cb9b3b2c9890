//! `polity policy new`: the repository of a policy, with everything that it is built of.

mod page;
mod vendor;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use polity_kube_rules::names::dns_subdomain_problem;
use serde_json::json;

pub(super) use vendor::Vendor;

use crate::crds::is_open;
use crate::progress::{Format, print, print_json};

/// The pages of the guide. Each is a whole policy, of which this command writes the files.
const LIFECYCLE: &str = include_str!("../../../../policies/sdk/README.md");
const IDENTITY: &str = include_str!("../../../../policies/sdk/IDENTITY.md");
const RETRY: &str = include_str!("../../../../policies/sdk/RETRY.md");
/// The compiler, and the versions of packages, with which Polity itself is built and tested.
const TOOLCHAIN: &str = include_str!("../../../../rust-toolchain.toml");
const LOCK: &str = include_str!("../../../../Cargo.lock");
/// Of the lifecycle policy, what the policy of another role is tried with.
const SAMPLE: [&str; 3] = ["Cargo.toml", "build.rs", "src/lib.rs"];
/// What the repository of each role has.
const COMMON: [&str; 3] = [".github/workflows/policy.yaml", ".gitignore", "README.md"];
/// Names that a crate cannot have here: packages that it depends on, packages of Rust, folders, and Rust's keywords.
const TAKEN: &str = "alloc core polity-sdk polity-sdk-build proc-macro sample schemars serde serde-json std test vendor \
    abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen if impl in \
    let loop macro match mod move mut override priv pub ref return self static struct super trait true try type typeof unsafe \
    unsized use virtual where while yield";

/// Make a policy: a crate with a typed object, a test, a binding, a scenario and a file for CI, which builds without a clone of
/// Polity.
///
/// The folder NAME is made. What it holds is explained by a page for each role: policies/sdk/README.md, IDENTITY.md and RETRY.md.
/// You need Rust (https://rustup.rs) and crates.io; the SDK comes out of this program.
///
/// Examples:
///
///   polity policy new lamplighter --kind Lamp.lamps.example.com
///
///   polity policy new patience --role retry --kind Lamp.lamps.example.com
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct New {
    /// The name of the policy, of its crate and of its folder: lower-case letters, digits and `-`.
    #[arg(value_name = "NAME")]
    name: String,
    /// What the policy decides.
    #[arg(long, value_enum, default_value_t)]
    role: Wanted,
    /// The kind of the objects that it decides about, and its group: `Lamp.lamps.example.com`.
    #[arg(long, value_name = "KIND.GROUP")]
    kind: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Wanted {
    /// Which action comes next.
    #[default]
    Lifecycle,
    /// Who may act, and as whom.
    Identity,
    /// How long to wait until the next try.
    Retry,
}

impl New {
    pub(super) fn run(self, format: Format) -> Result<ExitCode> {
        let names = Names::of(&self.name, &self.kind)?;
        let files = files(self.role, &names)?;
        let folder = Path::new(&self.name);
        fs::create_dir(folder)
            .with_context(|| format!("cannot make the folder {}: choose another name", folder.display()))?;
        let written = files
            .iter()
            .try_for_each(|(name, text)| write(&folder.join(name), text))
            .and_then(|()| vendor::write_sdk(&folder.join(vendor::FOLDER)));
        if written.is_err() {
            // Nothing half-made is left; the error says what failed.
            let _ = fs::remove_dir_all(folder);
        }
        written?;
        let files: Vec<&String> = files.iter().map(|(name, _)| name).collect();
        if format == Format::Json {
            print_json(&json!({"folder": folder, "files": files}));
            return Ok(ExitCode::SUCCESS);
        }
        print(&format!("{} has:", folder.display()));
        for name in files {
            print(&format!("    {name}"));
        }
        print(&"    vendor/, the SDK");
        print(&format!(
            "next: cd {} && rustup toolchain install && cargo test, and then polity test run",
            folder.display()
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// What takes the place of the names on the pages.
struct Names {
    krate: String,
    kind: String,
    group: String,
}

impl Names {
    fn of(krate: &str, kind: &str) -> Result<Self> {
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let begins = krate.starts_with(|c: char| c.is_ascii_lowercase());
        if !begins || !krate.chars().all(is_word) || krate.ends_with('-') || krate.len() > 63 {
            bail!(
                "{krate:?} is no name of a policy: it begins with a letter, and has lower-case letters, digits and `-`, 63 at most"
            );
        }
        if TAKEN.split_whitespace().any(|taken| taken == krate) {
            bail!(
                "{krate:?} is taken: it means something else to Rust, or to the policy's crate; choose another name"
            );
        }
        let Some((kind, group)) = kind.split_once('.') else {
            bail!("{kind:?} has no group; expected a kind and its group: Lamp.lamps.example.com");
        };
        let is_kind = kind.starts_with(|c: char| c.is_ascii_uppercase());
        if !is_kind || !kind.chars().all(|c| c.is_ascii_alphanumeric()) || kind.len() > 63 {
            bail!(
                "{kind:?} is no kind: it begins with an upper-case letter, and has letters and digits, 63 at most"
            );
        }
        if let Some(problem) = dns_subdomain_problem(group) {
            bail!("{group:?} is no group: {problem}");
        }
        if !is_open(group, kind) {
            bail!(
                "the group {group:?} is not open to policies: take a group of a domain of yours, as in lamps.example.com"
            );
        }
        Ok(Names {
            krate: krate.to_owned(),
            kind: kind.to_owned(),
            group: group.to_owned(),
        })
    }

    /// A file of a page in which the example's crate has the name `example`.
    fn fill(&self, example: &str, krate: &str, name: &str, text: &str) -> (String, String) {
        let snake = krate.replace('-', "_");
        // Rust calls a crate otherwise than cargo.
        let as_written = if name.ends_with(".rs") { &*snake } else { krate };
        let kind = self.kind.to_lowercase();
        let (upper_crate, upper_kind) = (krate.to_uppercase(), kind.to_uppercase());
        let words = [
            (example, as_written),
            (&*example.to_uppercase(), &*upper_crate),
            ("LAMP", &*upper_kind),
            ("lamps.example.com", &*self.group),
            ("lamps", &*format!("{kind}s")),
            ("Lamp", &*self.kind),
            ("lamp", &*kind),
        ];
        (name.replace(example, &snake), page::replaced(text, &words))
    }
}

/// All files but the SDK, by their paths in the folder.
fn files(role: Wanted, names: &Names) -> Result<Vec<(String, String)>> {
    let (page, example) = match role {
        Wanted::Lifecycle => (LIFECYCLE, "lamplighter"),
        Wanted::Identity => (IDENTITY, "tenancy"),
        Wanted::Retry => (RETRY, "patience"),
    };
    let lifecycle = || page::files(LIFECYCLE);
    let mut files: Vec<(String, String)> = page::files(page)
        .map(|(name, text)| names.fill(example, &names.krate, name, &text))
        .collect();
    if role != Wanted::Lifecycle {
        let common = lifecycle().filter(|(name, _)| COMMON.contains(name));
        files.extend(common.map(|(name, text)| names.fill("lamplighter", &names.krate, name, &text)));
        let sample = lifecycle().filter(|(name, _)| SAMPLE.contains(name));
        files.extend(sample.map(|(name, text)| {
            let (name, text) = names.fill("lamplighter", "sample", name, &text);
            (
                format!("sample/{name}"),
                text.replace("\"vendor/", "\"../vendor/"),
            )
        }));
        files.push(("sample/Cargo.lock".to_owned(), LOCK.to_owned()));
    }
    for (name, template) in lifecycle().filter(|(name, _)| name.ends_with(".rs")) {
        let is_taken = template
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| word == names.kind);
        if is_taken && names.kind != "Lamp" {
            bail!(
                "the kind {:?} has the name of something else in {name}: choose another name",
                names.kind
            );
        }
    }
    files.push(("Cargo.lock".to_owned(), LOCK.to_owned()));
    files.push(("rust-toolchain.toml".to_owned(), TOOLCHAIN.to_owned()));
    files.sort();
    Ok(files)
}

/// Writes a new file, and makes its folder.
fn write(path: &Path, text: &str) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(path)).with_context(cannot)?;
    let mut file = fs::File::create_new(path).with_context(cannot)?;
    file.write_all(text.as_bytes()).with_context(cannot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_example_is_left_under_other_names() {
        let names = Names::of("rack-keeper", "Rack.racks.example.org").expect("names");
        for (role, count) in [
            (Wanted::Lifecycle, 12),
            (Wanted::Identity, 17),
            (Wanted::Retry, 16),
        ] {
            let files = files(role, &names).expect("files");
            assert_eq!(
                files.len(),
                count,
                "{role:?}: {:?}",
                files.iter().map(|(name, _)| name).collect::<Vec<_>>()
            );
            for (name, text) in files {
                let words = format!("{name}\n{text}").to_lowercase();
                for word in ["lamp", "tenancy", "patience", "polity.dev/polity\" }"] {
                    assert!(!words.contains(word), "{word} in {name}: {text}");
                }
                if name == "tests/rack_keeper.rs" {
                    assert!(text.contains("use rack_keeper::"), "{text}");
                }
            }
        }
    }

    #[test]
    fn names_that_cannot_be_are_refused_before_anything_is_written() {
        for (krate, kind, why) in [
            ("Lamp", "Lamp.example.com", "no name of a policy"),
            ("-lamp", "Lamp.example.com", "no name of a policy"),
            ("../lamp", "Lamp.example.com", "no name of a policy"),
            ("type", "Lamp.example.com", "is taken"),
            ("serde", "Lamp.example.com", "is taken"),
            ("lamp", "Lamp", "has no group"),
            ("lamp", "lamp.example.com", "is no kind"),
            ("lamp", "Lämp.example.com", "is no kind"),
            ("lamp", "Lamp.Example.com", "is no group"),
            ("lamp", "Lamp.apps", "not open"),
            ("lamp", "Lamp.rbac.authorization.k8s.io", "not open"),
        ] {
            let Err(refused) = Names::of(krate, kind) else {
                panic!("{krate} {kind} is taken");
            };
            assert!(refused.to_string().contains(why), "{refused}");
        }
        for kind in ["Config", "Switch", "String", "Kind"] {
            let names = Names::of("lamp", &format!("{kind}.example.com")).expect("names");
            let refused = files(Wanted::Lifecycle, &names).expect_err("it means something else");
            assert!(refused.to_string().contains("something else"), "{refused}");
        }
    }
}
