//! Releases of the chart on a real API server, by the real Helm.

use std::path::Path;
use std::process::Output;

use polity_tests::kubernetes::Assets;
use polity_tests::skip::Skip;
use polity_tests::tools::Tools;
use serde_json::Value;

use crate::deploy::rendered::{CHART, template};
use crate::deploy::site::{CONFIG_MAP, Place, Site, succeeded};

/// A cluster, and Helm beside kubectl.
struct Shop {
    site: Site,
    tools: Tools,
    home: tempfile::TempDir,
}

impl Shop {
    fn open() -> Result<Shop, Skip> {
        let (assets, tools) = (Assets::find()?, Tools::find()?);
        let home = tempfile::tempdir().expect("a folder");
        let site = Site::start(&assets);
        Ok(Shop { site, tools, home })
    }

    /// Helm with this server. No pod ever runs there, so it never waits for one.
    fn try_helm(&self, arguments: &[&str]) -> Output {
        let kubeconfig = self.site.server.kubeconfig();
        let mut helm = self.tools.helm(self.home.path(), Some(Path::new(&kubeconfig)));
        helm.args(arguments).output().expect("helm runs")
    }

    fn helm(&self, arguments: &[&str]) -> String {
        succeeded(self.try_helm(arguments))
    }

    /// Everything in the cluster, of all kinds that can be listed, that has the label of a release.
    fn of_release(&self, release: &str) -> Vec<String> {
        let kinds = self
            .site
            .kubectl(&["api-resources", "--verbs=list", "-o", "name"]);
        // Two say the same of Events and of pods' metrics; nothing of ours is one.
        let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.contains("events")).collect();
        let label = format!("app.kubernetes.io/instance={release}");
        let found = ["get", &kinds.join(","), "-A", "-l", &label, "-o", "name"];
        self.site.kubectl(&found).lines().map(str::to_owned).collect()
    }
}

#[test]
fn the_chart_runs_a_host_with_its_own_account_is_upgraded_and_goes_without_a_trace() {
    let shop = match Shop::open() {
        Ok(shop) => shop,
        Err(skip) => return skip.print(),
    };
    let site = &shop.site;
    let at = Place {
        namespace: "team-red",
        name: "red-polity",
    };
    site.kubectl(&["create", "namespace", at.namespace]);
    site.kubectl(&[
        "label",
        "ns",
        at.namespace,
        "pod-security.kubernetes.io/enforce=restricted",
    ]);
    let policy = format!("--from-file={}", site.policy().display());
    let policies = ["create", "configmap", CONFIG_MAP, "-n", at.namespace];
    site.kubectl(&[&policies[..], &[&policy]].concat());
    let rendered = succeeded(template(&shop.tools, "red", at.namespace, &[]));
    let checked = site.apply(&rendered, &["--dry-run=server"]);
    assert!(!checked.contains("Warning"), "{checked}");

    let policies = format!("policies.configMaps={{{CONFIG_MAP}}}");
    let installed = shop.helm(&["install", "red", CHART, "-n", at.namespace, "--set", &policies]);
    assert!(
        installed.contains("polity rbac --lease team-red/red-polity"),
        "{installed}"
    );
    assert_eq!(shop.of_release("red").len(), 10, "{:?}", shop.of_release("red"));
    site.allow(at);
    site.runs_machines(at);

    let changed = ["--reuse-values", "--set", "replicas=1,logLevel=info,dataSize=2Gi"];
    shop.helm(&[&["upgrade", "red", CHART, "-n", at.namespace][..], &changed].concat());
    let left = shop.of_release("red");
    assert_eq!(left.len(), 9, "{left:?}");
    assert!(
        !left.iter().any(|name| name.contains("poddisruptionbudget")),
        "{left:?}"
    );
    let deployment = shop
        .site
        .json(&["get", "deployment", at.name, "-n", at.namespace]);
    assert_eq!(deployment["spec"]["replicas"], 1);

    shop.helm(&["uninstall", "red", "-n", at.namespace]);
    assert_eq!(shop.of_release("red"), [""; 0]);
    let secrets = site.kubectl(&["get", "secrets", "-n", at.namespace, "-o", "name"]);
    assert!(!secrets.contains("helm"), "{secrets}");
    // What others made stays for them.
    for (kind, name, namespace) in [
        ("crd", "machines.capv.polity.dev", ""),
        ("policybinding", "capv-machine", ""),
        ("machine", "machine-01", "team-a"),
        ("configmap", CONFIG_MAP, at.namespace),
        ("clusterrole", "red-polity-bindings", ""),
    ] {
        let found = site.kubectl(&["get", kind, name, "-n", namespace, "-o", "name"]);
        assert!(found.contains(name), "{found}");
    }
}

/// The names of a release's objects, with their kinds and namespaces, and the labels that it selects pods by.
fn names(shop: &Shop, release: &str, namespace: &str) -> (Vec<String>, Value) {
    let mut names = shop.of_release(release);
    names.sort();
    let deployments = shop.site.json(&[
        "get",
        "deployments",
        "-n",
        namespace,
        "-l",
        &format!("app.kubernetes.io/instance={release}"),
    ]);
    let [deployment] = deployments["items"].as_array().expect("items").as_slice() else {
        panic!("one Deployment of {release}");
    };
    let spec = &deployment["spec"];
    let arguments = &spec["template"]["spec"]["containers"][0]["args"];
    let mut arguments = arguments
        .as_array()
        .expect("arguments")
        .iter()
        .filter_map(Value::as_str);
    let lease = arguments.find(|argument| argument.starts_with("--lease="));
    names.push(lease.expect("a lease").to_owned());
    (names, spec["selector"]["matchLabels"].clone())
}

#[test]
fn releases_in_one_namespace_and_of_one_name_stand_beside_each_other() {
    let shop = match Shop::open() {
        Ok(shop) => shop,
        Err(skip) => return skip.print(),
    };
    for namespace in ["teams", "others"] {
        shop.site.kubectl(&["create", "namespace", namespace]);
    }
    // With the usual rule for names the first two would both be red-polity.
    let releases = ["red", "red-polity", "polity"];
    for release in releases {
        shop.helm(&["install", release, CHART, "-n", "teams"]);
    }
    let found = releases.map(|release| names(&shop, release, "teams"));
    for (index, (names, labels)) in found.iter().enumerate() {
        for (others, other) in &found[index + 1..] {
            assert!(
                names.iter().all(|name| !others.contains(name)),
                "{names:?} {others:?}"
            );
            assert_ne!(labels, other);
        }
    }
    // What is in no namespace does not collide either.
    shop.helm(&["install", "red", CHART, "-n", "others"]);

    // Who takes another one's name is told so, and nothing of theirs is left.
    let same = ["--set", "fullnameOverride=red-polity"];
    let refused = shop.try_helm(&[&["install", "green", CHART, "-n", "teams"][..], &same].concat());
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("red-polity") && said.contains("invalid ownership metadata"),
        "{said}"
    );
    assert_eq!(shop.of_release("green"), [""; 0]);
}

#[test]
fn every_source_of_policies_and_every_setting_of_pods_is_taken_by_the_api_server() {
    let shop = match Shop::open() {
        Ok(shop) => shop,
        Err(skip) => return skip.print(),
    };
    let settings = [
        "policies.image.reference=registry.example.com/policies:1",
        "policies.image.pullPolicy=Always",
        "imagePullSecrets[0].name=registry",
        "nodeSelector.pool=control",
        "tolerations[0].key=control,tolerations[0].operator=Exists,tolerations[0].effect=NoSchedule",
        "topologySpreadConstraints[0].maxSkew=1,topologySpreadConstraints[0].topologyKey=topology.kubernetes.io/zone",
        "topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway",
        "topologySpreadConstraints[0].labelSelector.matchLabels.c=d",
        "dataVolumeClaim=recordings,otlpEndpoint=http://collector:4318",
        "extraArgs={--in-memory-of=nobody},extraEnv[0].name=HTTPS_PROXY,extraEnv[0].value=http://proxy:3128",
        "extraVolumes[0].name=roots,extraVolumes[0].configMap.name=roots",
        "extraVolumeMounts[0].name=roots,extraVolumeMounts[0].mountPath=/etc/ssl/certs",
        "podAnnotations.a=b,podLabels.c=d,serviceAccount.annotations.e=f",
        "image.digest=sha256:0123456789012345678901234567890123456789012345678901234567890123",
    ];
    let rendered = succeeded(template(&shop.tools, "red", "default", &settings));
    // Strict: a field that this API server does not know fails.
    let strict = ["--dry-run=server", "--validate=strict", "-o", "json"];
    let taken: Value = serde_json::from_str(&shop.site.apply(&rendered, &strict)).expect("JSON");
    let objects = taken["items"].as_array().expect("a list");
    let spec = &crate::deploy::rendered::only(objects, "Deployment")["spec"]["template"]["spec"];
    let image = &spec["volumes"][0]["image"];
    assert_eq!(image["reference"], "registry.example.com/policies:1");
    let recordings = &spec["volumes"][1]["persistentVolumeClaim"];
    assert_eq!(recordings["claimName"], "recordings");
    let arguments = spec["containers"][0]["args"].as_array().expect("arguments");
    for wanted in [
        "--data=/data/$(POD_NAME)",
        "--otlp-endpoint=http://collector:4318",
        "--in-memory-of=nobody",
    ] {
        assert!(
            arguments.iter().any(|argument| argument == wanted),
            "{wanted} in {arguments:?}"
        );
    }
    assert_eq!(spec["tolerations"][0]["effect"], "NoSchedule");
    let of = spec["containers"][0]["image"].as_str().expect("text");
    assert!(of.starts_with("polity@sha256:"), "{of}");
}
