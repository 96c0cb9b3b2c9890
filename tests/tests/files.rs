//! Files that the host writes can be read only by its user, with any umask, and also if another user used the folder
//! before.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use polity_tests::guests;

const MANIFESTS: &str = r#"
apiVersion: polity.dev/v1alpha1
kind: PolicyBinding
metadata: {name: capv-machine}
spec:
  governs: {apiVersion: capv.polity.dev/v1alpha1, kind: Machine}
  policies:
    lifecycle: {file: capv-machine.wasm}
  cloud: {name: sim}
  grants:
    - cloud: ["vm.*", "task.get"]
---
apiVersion: capv.polity.dev/v1alpha1
kind: Machine
metadata: {name: machine-1, namespace: default}
spec: {template: ubuntu, network: {devices: [{networkName: net, dhcp4: true}]}}
---
apiVersion: polity.dev/v1alpha1
kind: Scenario
speed: 100
deadline: 2h
"#;

/// The host under a umask that takes nothing away, with this place for temporary files.
fn polity(temporary: &Path, arguments: &[&str]) -> Output {
    Command::new("sh")
        .args([
            "-c",
            "umask 0; exec \"$0\" \"$@\"",
            env!("CARGO_BIN_EXE_polity-under-test"),
        ])
        .args(arguments)
        .env("TMPDIR", temporary)
        .output()
        .expect("it runs")
}

fn shown(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A folder of a person, as most are: open to others.
fn shared(within: &Path, name: &str) -> PathBuf {
    let path = within.join(name);
    fs::create_dir(&path).expect("created");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    path
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o7777
}

/// Every folder and file below this one, itself included.
fn all(path: &Path) -> Vec<PathBuf> {
    let mut found = vec![path.to_owned()];
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.for_each(|entry| found.extend(all(&entry.path())));
    found
}

fn given(within: &Path) -> String {
    let folder = shared(within, "given");
    fs::write(folder.join("all.yaml"), MANIFESTS).expect("written");
    fs::write(folder.join("capv-machine.wasm"), guests::capv_machine()).expect("written");
    folder.display().to_string()
}

#[test]
fn what_the_host_keeps_is_its_user_s_alone() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = given(place.path());
    let (data, record) = (shared(place.path(), "data"), place.path().join("rec/one"));
    let victim = place.path().join("victim");
    fs::write(&victim, "precious").expect("written");
    let (linked, wide) = (place.path().join("linked"), place.path().join("wide"));
    symlink(&victim, &linked).expect("linked");
    fs::write(&wide, "an old one").expect("written");
    fs::set_permissions(&wide, fs::Permissions::from_mode(0o666)).expect("it is ours");
    for (kubeconfig, recorded) in [(&linked, false), (&wide, true)] {
        let text = |path: &Path| path.display().to_string();
        let (data, record, kubeconfig) = (text(&data), text(&record), text(kubeconfig));
        let mut arguments = vec!["run", "--until-settled", "--listen", "0", "--data", &data];
        arguments.extend(["--write-kubeconfig", &kubeconfig]);
        if recorded {
            arguments.extend(["--record", &record]);
        }
        arguments.push(&folder);
        let output = polity(place.path(), &arguments);
        assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    }
    let uid = rustix::process::geteuid().as_raw();
    let pointers = place.path().join(format!("polity-{uid}"));
    let mut kept: Vec<PathBuf> = [&data, &record, &pointers]
        .into_iter()
        .flat_map(|path| all(path))
        .collect();
    for name in [
        "lock",
        "time",
        "objects.redb",
        "cloud-sim.redb",
        "recordings/passes",
        "recordings/policies",
    ] {
        assert!(kept.contains(&data.join(name)), "{name}: {kept:#?}");
    }
    kept.extend([linked.clone(), wide]);
    for path in &kept {
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(path), expected, "{}", path.display());
    }
    assert_eq!(fs::read_to_string(&victim).expect("read"), "precious");
    assert!(fs::symlink_metadata(&linked).expect("it is there").is_file());
}

#[test]
fn a_place_that_somebody_else_prepared_is_not_used() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = given(place.path());
    let elsewhere = shared(place.path(), "elsewhere");
    let uid = rustix::process::geteuid().as_raw();
    symlink(&elsewhere, place.path().join(format!("polity-{uid}"))).expect("linked");
    fs::write(elsewhere.join("latest"), "/forged").expect("written");

    let output = polity(place.path(), &["run", "--until-settled", &folder]);
    assert_eq!(output.status.code(), Some(0), "{}", shown(&output));
    assert!(shown(&output).contains("symbolic link"), "{}", shown(&output));
    assert_eq!(
        fs::read_to_string(elsewhere.join("latest")).expect("read"),
        "/forged"
    );
    assert_eq!(all(&elsewhere).len(), 2);
    let output = polity(place.path(), &["explain", "Machine", "default/machine-1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(shown(&output).contains("--recordings"), "{}", shown(&output));
    assert!(!shown(&output).contains("/forged"), "{}", shown(&output));

    // What it recorded is in a folder whose name nobody could foresee.
    let is_recording = |path: &&PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("polity-recordings-"))
    };
    let found = all(place.path());
    let recording = found.iter().find(is_recording).expect("a recording");
    assert_eq!(mode(recording), 0o700);
}

#[test]
fn a_data_folder_with_links_or_other_things_in_it_is_refused() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = given(place.path());
    let victim = place.path().join("victim");
    fs::write(&victim, "precious").expect("written");
    for name in ["lock", "time", "objects.redb"] {
        let data = shared(place.path(), &format!("data-{name}"));
        symlink(&victim, data.join(name)).expect("linked");
        let output = polity(
            place.path(),
            &[
                "run",
                "--until-settled",
                "--data",
                &data.display().to_string(),
                &folder,
            ],
        );
        assert_ne!(output.status.code(), Some(0), "{name}: {}", shown(&output));
        assert!(
            shown(&output).contains("symbolic link"),
            "{name}: {}",
            shown(&output)
        );
    }
    let output = polity(
        place.path(),
        &["run", "--until-settled", "--data", &folder, &folder],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(shown(&output).contains("chmod 700"), "{}", shown(&output));
    assert_eq!(mode(Path::new(&folder)), 0o755);
    assert_eq!(fs::read_to_string(&victim).expect("read"), "precious");
}
