//! Who may write a CloudConnection: whoever may use the Secrets that it names, or the identity of the host where it names none.

use std::fs;

use polity_tests::kubernetes::Assets;

use crate::deploy::rendered::BASE;
use crate::deploy::site::Site;

/// Alice writes connections, and may use one Secret.
const ALICE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: team-a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: writes-connections}
rules: [{apiGroups: [polity.dev], resources: [cloudconnections], verbs: [get, create, update, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: alice-writes-connections}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: writes-connections}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: uses-own, namespace: team-a}
rules: [{apiGroups: [''], resources: [secrets], resourceNames: [own], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice-uses-own, namespace: team-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: uses-own}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
";

/// A connection that names a Secret of team-a in this field.
fn naming(field: &str, secret: &str) -> String {
    let named = format!("{{namespace: team-a, name: {secret}}}");
    let own = "credentials: {namespace: team-a, name: own}";
    let field = match field {
        "caBundle" => format!("{own}, caBundle: {{secret: {named}}}"),
        "clientCertificate" => format!("{own}, clientCertificate: {named}"),
        field => format!("{field}: {named}"),
    };
    format!(
        "apiVersion: polity.dev/v1alpha1
kind: CloudConnection
metadata: {{name: {}}}
spec: {{driver: {{file: d.wasm}}, {field}}}
",
        secret.to_lowercase()
    )
}

#[test]
fn a_connection_is_written_by_those_who_may_use_its_secrets() {
    let assets = match Assets::find() {
        Ok(assets) => assets,
        Err(skip) => return skip.print(),
    };
    let site = Site::start(&assets);
    site.apply(ALICE, &[]);
    site.apply(
        &fs::read_to_string(format!("{BASE}/connections.yaml")).expect("read"),
        &[],
    );
    let by_alice = |manifest: &str, more: &[&str]| {
        let file = site.folder.path().join("connection.yaml");
        fs::write(&file, manifest).expect("written");
        let file = file.display().to_string();
        let arguments = [&["apply", "--as", "alice", "-f", &file], more].concat();
        let output = site.server.kubectl(&arguments);
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    };
    // A server takes a moment to heed a policy.
    while by_alice(&naming("credentials", "another"), &["--dry-run=server"]).is_ok() {}

    for field in ["credentials", "clientCertificate", "caBundle"] {
        let refused = by_alice(&naming(field, "another"), &[]).expect_err("it is not hers");
        let why = "you may not use Secret team-a/another: RBAC must allow you the verb use on it";
        assert!(refused.contains(field) && refused.contains(why), "{refused}");
    }
    assert_eq!(by_alice(&naming("credentials", "own"), &[]), Ok(()));

    // What she may use no more, she sends to no other server either; and who changes no spec needs no Secret.
    site.kubectl(&["delete", "rolebinding", "alice-uses-own", "-n", "team-a"]);
    let patched = |patch: &str| {
        let patch = [
            "patch",
            "cloudconnection",
            "own",
            "--as",
            "alice",
            "--type",
            "merge",
            "-p",
            patch,
        ];
        let output = site.server.kubectl(&patch);
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let elsewhere = r#"{"spec":{"endpoints":{"api":"https://evil.example"}}}"#;
    let (was_patched, said) = loop {
        match patched(elsewhere) {
            (true, _) => {
                site.kubectl(&[
                    "patch",
                    "cloudconnection",
                    "own",
                    "--type",
                    "merge",
                    "-p",
                    r#"{"spec":{"endpoints":null}}"#,
                ]);
            }
            refused => break refused,
        }
    };
    assert!(
        !was_patched && said.contains("you may not use Secret team-a/own"),
        "{said}"
    );
    let (was_patched, said) = patched(r#"{"metadata":{"finalizers":["example.com/held"]}}"#);
    assert!(was_patched, "{said}");

    // Without credentials the host logs in as itself: that takes a right of its own, for a new connection and for one that loses them.
    let of_the_host = "on hostidentities.polity.dev/own";
    let without = r#"{"spec":{"credentials":null}}"#;
    let (was_patched, said) = patched(without);
    assert!(!was_patched && said.contains(of_the_host), "{said}");
    let bare = naming("region", "own").replace("region: {namespace: team-a, name: own}", "region: eu-west-1");
    let new = bare.replace("name: own", "name: new");
    let refused = by_alice(&new, &[]).expect_err("it is not hers");
    assert!(refused.contains("on hostidentities.polity.dev/new"), "{refused}");
    site.apply(HOST_IDENTITY, &[]);
    let (was_patched, said) = loop {
        match patched(without) {
            (false, said) if said.contains(of_the_host) => {}
            other => break other,
        }
    };
    assert!(was_patched, "{said}");
    let refused = by_alice(&new, &[]).expect_err("her right names another connection");
    assert!(refused.contains("on hostidentities.polity.dev/new"), "{refused}");
}

/// Alice may use the identity of the host for one connection.
const HOST_IDENTITY: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: uses-host}
rules: [{apiGroups: [polity.dev], resources: [hostidentities], resourceNames: [own], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: alice-uses-host}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: uses-host}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
";
