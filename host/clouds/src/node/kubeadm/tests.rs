//! Tests of which upgrade is allowed on which machine. The machine is a folder.

use tempfile::TempDir;

use super::super::NodeConfig;
use super::*;

/// The root of a machine with these files below `etc/kubernetes`.
fn root(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().expect("a folder");
    for (file, text) in files {
        let file = root.path().join("etc/kubernetes").join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, text).expect("written");
    }
    root
}

fn debian(root: &TempDir) -> Debian {
    Debian::new(&NodeConfig {
        node: "n".into(),
        seed: None,
        root: root.path().to_owned(),
        dry_run: false,
        reboot_command: None,
        kubelet_restart_command: None,
    })
}

fn control_plane(release: &str) -> TempDir {
    let manifest = format!("spec:\n  containers:\n  - image: registry.k8s.io/kube-apiserver:v{release}\n");
    root(&[("manifests/kube-apiserver.yaml", &manifest), ("admin.conf", "")])
}

/// Why this upgrade is refused; `None` if it is allowed.
fn refused(
    root: &TempDir,
    role: Role,
    release: &str,
    kubelet: (Option<&str>, Option<&str>),
) -> Option<Reason> {
    let allowed = Kubeadm::of(&debian(root)).allows(role, release, kubelet);
    allowed.err().and_then(|error| error.reason)
}

#[test]
fn a_control_plane_goes_one_minor_version_at_once() {
    let root = control_plane("1.30.2");
    let skew = Some(Reason::VersionSkew);
    for (release, why) in [
        ("1.30.9", None),
        ("1.30.1", None),
        ("1.31.1", None),
        ("1.29.15", None),
        ("1.32.0", skew),
        ("1.28.0", skew),
        ("2.30.2", skew),
        ("new", skew),
    ] {
        for role in [Role::Apply, Role::Node] {
            // The kubelet of a control plane may be behind, so its version is not checked.
            assert_eq!(
                refused(&root, role, release, (Some("1.28.0"), None)),
                why,
                "{release}"
            );
        }
    }
}

#[test]
fn the_kubelet_of_a_worker_goes_three_minor_versions_up() {
    let root = root(&[("kubelet.conf", "")]);
    let skew = Some(Reason::VersionSkew);
    for (release, why) in [
        ("1.33.0", None),
        ("1.29.0", None),
        ("1.34.0", skew),
        ("1.28.0", skew),
    ] {
        let why_here = refused(&root, Role::Node, release, (Some("1.30.2"), None));
        assert_eq!(why_here, why, "{release}");
    }
}

#[test]
fn a_kubelet_is_not_newer_than_its_control_plane_and_not_much_older() {
    let root = control_plane("1.30.2");
    let skew = Some(Reason::VersionSkew);
    for (kubelet, why) in [
        ("1.31.0", None),
        ("1.28.0", None),
        ("1.32.0", skew),
        ("1.27.9", skew),
    ] {
        let why_here = refused(&root, Role::Apply, "1.31.1", (None, Some(kubelet)));
        assert_eq!(why_here, why, "{kubelet}");
    }
}

#[test]
fn a_machine_that_kubeadm_does_not_know_is_refused() {
    let none = (None, None);
    let not_joined = Some(Reason::NotJoined);
    assert_eq!(refused(&root(&[]), Role::Node, "1.31.1", none), not_joined);
    let worker = root(&[("kubelet.conf", "")]);
    assert_eq!(refused(&worker, Role::Node, "1.31.1", none), None);
    assert_eq!(refused(&worker, Role::Apply, "1.31.1", none), not_joined);
    let without_admin = root(&[("manifests/kube-apiserver.yaml", ""), ("kubelet.conf", "")]);
    assert_eq!(refused(&without_admin, Role::Node, "1.31.1", none), not_joined);
}

#[test]
fn the_release_of_a_control_plane_is_the_tag_of_its_image() {
    let told = |image: &str| {
        let root = root(&[("manifests/kube-apiserver.yaml", &format!("    image: {image}\n"))]);
        Kubeadm::of(&debian(&root)).control_plane()
    };
    assert_eq!(
        told("registry:5000/kube-apiserver:v1.30.2").as_deref(),
        Some("1.30.2")
    );
    assert_eq!(
        told("\"a/kube-apiserver:v1.30.2@sha256:00\"").as_deref(),
        Some("1.30.2")
    );
    assert_eq!(told("registry:5000/kube-apiserver@sha256:00"), None);
}
