//! Shipped policies that decide differently, each by a small change of its source: `polity replay` names what would be decided
//! differently, and a host that runs takes it over.

mod fixture;
mod seeded;
mod swapped;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use polity_tests::guests;

use crate::page::{command, repository, succeeds};
pub(crate) use swapped::SOFT;

/// A shipped policy with a changed source.
pub(crate) struct Variant {
    /// The name of its crate.
    name: &'static str,
    /// The policy.
    of: &'static str,
    /// Texts of its files, each with what stands in its place.
    pub(crate) changes: &'static [Change],
}

/// A file below `src`, a text that stands in it once, and another one.
type Change = (&'static str, &'static str, &'static str);

/// The crates of all variants are alike: a dependency that one does not use costs nothing.
const CRATE: &str = "
version.workspace = true
edition.workspace = true

[lib]
crate-type = [\"cdylib\"]

[dependencies]
mcm-api.workspace = true
orbiter-api.workspace = true
polity-sdk.workspace = true
schemars.workspace = true
serde.workspace = true
serde_json.workspace = true

[build-dependencies]
polity-sdk-build.workspace = true
";

/// Code that is not optimised needs a large stack.
const BUILD: &str = "fn main() {
    polity_sdk_build::link_with_stack(1 << 20);
}
";

/// A compiler that does not optimise: it takes a tenth of the time, and the code runs only for a few passes. Only
/// capa-identity, with the schemas of five kinds, would need more fuel to describe itself than a policy gets.
const UNOPTIMISED: &str = "#!/bin/sh
case $CARGO_PKG_NAME in capa-*) exec \"$@\" ;; esac
exec \"$@\" -Copt-level=0
";

impl Variant {
    /// The component. All variants are built at once, by the first test that needs one.
    ///
    /// # Panics
    /// A change does not fit the policy any more, or the changed policy cannot be compiled.
    pub(crate) fn component(&self) -> PathBuf {
        static BUILT: OnceLock<()> = OnceLock::new();
        BUILT.get_or_init(build);
        let file = format!("{}.wasm", self.name.replace('-', "_"));
        folder().join("target/wasm32-unknown-unknown/debug").join(file)
    }

    /// Writes the crate.
    fn write(&self, workspace: &Path) {
        write_crate(
            &workspace.join(self.name),
            self.of,
            self.name,
            self.changes,
            BUILD,
        );
    }
}

/// Writes the crate of a policy under another name. Files that are right already are left alone, so that cargo builds only what
/// has changed.
fn write_crate(krate: &Path, policy: &str, name: &str, changes: &[Change], build: &str) {
    replace(
        &krate.join("Cargo.toml"),
        &format!("[package]\nname = \"{name}\"{CRATE}"),
    );
    replace(&krate.join("build.rs"), build);
    // It is another version of the policy, not another policy.
    let own_name = format!("{policy:?}");
    let renamed = ["edges.rs", "env!(\"CARGO_PKG_NAME\")", &own_name];
    let mut changes: Vec<[&str; 3]> = changes.iter().map(|(file, from, to)| [*file, from, to]).collect();
    changes.push(renamed);
    for (file, mut text) in sources(&repository().join("policies").join(policy).join("src"), "") {
        changes.retain(|[of, from, to]| {
            if *of == file {
                assert_eq!(
                    text.matches(from).count(),
                    1,
                    "{name}, {file} of {policy}: {from}"
                );
                text = text.replace(from, to);
            }
            *of != file
        });
        replace(&krate.join("src").join(file), &text);
    }
    assert!(changes.is_empty(), "{name}: no such file: {changes:?}");
}

/// Writes a folder like a clone of this repository with this policy, which has another name as a crate.
pub(crate) fn write_policy(clone: &Path, policy: &str, name: &str) {
    write_workspace(clone, &[&format!("policies/{policy}")]);
    let build = "fn main() {\n    polity_sdk_build::link();\n}\n";
    write_crate(&clone.join("policies").join(policy), policy, name, &[], build);
}

/// All variants.
fn all() -> impl Iterator<Item = &'static Variant> {
    let seeded = seeded::ALL.iter().map(|seeded| &seeded.variant);
    swapped::ALL.into_iter().chain(seeded)
}

/// The files below a folder, each with its path and its text.
fn sources(folder: &Path, below: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = format!("{below}{}", path.file_name().expect("a name").display());
        if path.is_dir() {
            all.extend(sources(&path, &format!("{name}/")));
        } else {
            all.push((name, fs::read_to_string(&path).expect("text")));
        }
    }
    all
}

fn replace(file: &Path, text: &str) {
    if fs::read_to_string(file).ok().as_deref() != Some(text) {
        fs::create_dir_all(file.parent().expect("a folder")).expect("created");
        fs::write(file, text).expect("written");
    }
}

/// Writes the manifest of a workspace that takes the packages of this repository as dependencies.
fn write_workspace(folder: &Path, members: &[&str]) {
    let root = fs::read_to_string(repository().join("Cargo.toml")).expect("a workspace");
    let packages = root
        .split_once("[workspace.package]")
        .expect("what packages share")
        .1;
    let packages = packages.split_once("[workspace.lints").expect("nothing else").0;
    let packages = packages.replace("path = \"", &format!("path = \"{}/", repository().display()));
    let manifest =
        format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n\n[workspace.package]{packages}");
    replace(&folder.join("Cargo.toml"), &manifest);
    let lock = fs::read_to_string(repository().join("Cargo.lock")).expect("a lock");
    replace(&folder.join("Cargo.lock"), &lock);
}

/// Writes the compiler that does not optimise.
pub(crate) fn unoptimised(folder: &Path) -> PathBuf {
    let compiler = folder.join("unoptimised");
    replace(&compiler, UNOPTIMISED);
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&compiler, executable).expect("a program");
    compiler
}

/// Builds all variants, with the dependencies that the pages for authors share (`outside.rs`).
fn build() {
    let workspace = folder();
    let members: Vec<&str> = all().map(|variant| variant.name).collect();
    write_workspace(&workspace, &members);
    all().for_each(|variant| variant.write(&workspace));

    let mut cargo = command("cargo", &workspace);
    let target = ["build", "--quiet", "--target", "wasm32-unknown-unknown"];
    cargo.args(target).args(["--config", guests::FLAGS]);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", unoptimised(&workspace));
    // The components do not lie among those of other tests.
    cargo.env("CARGO_BUILD_BUILD_DIR", guests::target());
    cargo.env("CARGO_TARGET_DIR", workspace.join("target"));
    succeeds(cargo);
}

/// The workspace of the variants.
fn folder() -> PathBuf {
    guests::target().join("variants")
}
