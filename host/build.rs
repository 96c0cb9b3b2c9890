//! Puts the packages that a policy is built of into the program, as source: `polity policy new` writes them beside a policy.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The packages.
const PACKAGES: [&str; 5] = [
    "host/kube-rules",
    "policies/sdk",
    "policies/sdk/build",
    "policies/sdk/macros",
    "wit",
];
/// What is taken of each; tests and pages stay.
const TAKEN: [&str; 6] = [
    "CHANGES.md",
    "Cargo.toml",
    "manifest.schema.json",
    "policy.wit",
    "src",
    "types.wit",
];

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("a workspace");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names it"));
    let manifest = root.join("Cargo.toml");
    println!("cargo::rerun-if-changed={}", manifest.display());
    fs::write(out.join("Cargo.toml"), workspace(&fs::read_to_string(manifest)?))?;
    let mut files = vec![root.join("LICENSE")];
    let taken = PACKAGES
        .iter()
        .flat_map(|package| TAKEN.map(|name| root.join(package).join(name)));
    for path in taken.filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
        collect(&path, &mut files)?;
    }
    files.sort();
    let mut table = String::from("[\n");
    for file in &files {
        let name = file.strip_prefix(root).expect("it is within").display();
        let line = format!(
            "({:?}, include_str!({:?})),",
            name.to_string(),
            file.display().to_string()
        );
        writeln!(table, "{line}").expect("text");
    }
    table.push(']');
    fs::write(out.join("vendored.rs"), table)
}

/// The workspace of the vendored packages: what they inherit, without what concerns this workspace alone.
fn workspace(text: &str) -> String {
    let mut inherits = false;
    let inherited = text.lines().filter(|line| {
        if line.starts_with('[') {
            inherits = line.starts_with("[workspace.");
        }
        inherits && !line.starts_with('#')
    });
    let mut workspace = format!("[workspace]\nresolver = \"3\"\nmembers = {PACKAGES:?}\n\n");
    for line in inherited {
        workspace.push_str(line);
        workspace.push('\n');
    }
    workspace
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}
