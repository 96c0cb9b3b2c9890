//! Makes the version of wasmtime known, which every recording carries.

fn main() {
    println!("cargo:rerun-if-changed=../../Cargo.lock");
    let lock = std::fs::read_to_string("../../Cargo.lock").unwrap_or_default();
    let version = lock
        .split("[[package]]")
        .find(|package| package.contains("name = \"wasmtime\"\n"))
        .and_then(|package| package.lines().find_map(|line| line.strip_prefix("version = ")))
        .map_or("unknown", |version| version.trim_matches('"'));
    println!("cargo:rustc-env=WASMTIME_VERSION={version}");
}
