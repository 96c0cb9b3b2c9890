//! What `host/deploy/release` makes without a container engine.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::page::repository;

fn run(command: &mut Command) {
    let output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// The blob that a descriptor names, which has the size and the digest that it says.
fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().expect("a digest");
    let (algorithm, hex) = digest.split_once(':').expect("an algorithm");
    let content = fs::read(layout.join("blobs").join(algorithm).join(hex)).expect("it is there");
    assert_eq!(descriptor["size"], content.len());
    assert_eq!(sha256(&content), digest);
    content
}

fn sha256(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn json(content: &[u8]) -> Value {
    serde_json::from_slice(content).expect("JSON")
}

#[test]
fn an_image_has_one_binary_for_each_architecture_and_is_made_the_same_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for name in ["amd64", "arm64"] {
        fs::write(at(name), format!("the binary for {name}")).expect("written");
    }
    for image in ["image.tar", "again.tar"] {
        let mut made = Command::new(repository().join("host/deploy/oci-image"));
        run(made
            .arg(at(image))
            .args(["1.2.3", "amd64=amd64", "arm64=arm64"])
            .current_dir(folder.path()));
    }
    assert!(fs::read(at("image.tar")).expect("made") == fs::read(at("again.tar")).expect("made"));

    let layout = at("layout");
    fs::create_dir(&layout).expect("created");
    run(Command::new("tar")
        .arg("-xf")
        .arg(at("image.tar"))
        .arg("-C")
        .arg(&layout));
    let index = json(&fs::read(layout.join("index.json")).expect("read"));
    let named = &index["manifests"][0];
    assert_eq!(named["annotations"]["org.opencontainers.image.ref.name"], "1.2.3");
    let platforms = json(&blob(&layout, named));
    let mut binaries = BTreeMap::new();
    for platform in platforms["manifests"].as_array().expect("manifests") {
        let manifest = json(&blob(&layout, platform));
        let config = json(&blob(&layout, &manifest["config"]));
        assert_eq!(config["architecture"], platform["platform"]["architecture"]);
        // As the Containerfile says.
        assert_eq!(
            config["config"],
            serde_json::json!({"User": "65532:65532", "Entrypoint": ["/polity"]})
        );
        let layer = at("layer.tar.gz");
        fs::write(&layer, blob(&layout, &manifest["layers"][0])).expect("written");
        run(Command::new("gunzip").arg("--force").arg(&layer));
        let layer = at("layer.tar");
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            sha256(&fs::read(&layer).expect("read"))
        );
        run(Command::new("tar")
            .arg("-xf")
            .arg(&layer)
            .arg("-C")
            .arg(folder.path()));
        let architecture = config["architecture"].as_str().expect("text").to_owned();
        binaries.insert(architecture, fs::read_to_string(at("polity")).expect("text"));
    }
    let wanted = ["amd64", "arm64"].map(|name| (name.to_owned(), format!("the binary for {name}")));
    assert_eq!(binaries, wanted.into());
}
