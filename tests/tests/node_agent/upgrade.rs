//! Upgrades of Kubernetes on one machine: with packages of the test, whose `kubeadm` writes its calls down.

use polity_tests::skip::Skip;

use super::*;

const BEFORE: &str = "1.30.2";
const AFTER: &str = "1.31.1";

/// A kubeadm. It writes down each call with what is installed at that time, stands still or fails if it is told to,
/// and changes the version of a control plane.
const KUBEADM: &str = r#"#!/bin/sh
root=
words=
for word; do
  case "$word" in
    --rootfs=*) root="${word#--rootfs=}" ;;
    *) words="$words $word" ;;
  esac
done
[ -n "$root" ] || exit 9
installed=$(dpkg-query --admindir="$root/var/lib/dpkg" --show --showformat='${Package} ${Version}, ' \
  kubeadm kubelet linux-image-amd64)
stands_still() {
  [ -e "$root/$1" ] || return 0
  rm "$root/$1"
  touch "$root/reached"
  while [ -d "$root" ] && [ ! -e "$root/go-on" ]; do sleep 0.1; done
}
echo "begins$words with $installed" >> "$root/calls"
stands_still stand-still
if [ -e "$root/fail" ]; then cat "$root/fail" >&2; exit 1; fi
manifest="$root/etc/kubernetes/manifests/kube-apiserver.yaml"
case "$words" in
  *apply*) sed -i 's/:v.*/:vVERSION/' "$manifest" ;;
esac
stands_still stand-still-at-the-end
echo "ends$words" >> "$root/calls"
"#;

/// How a machine is part of the cluster.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    ControlPlane,
    Worker,
}

impl Stage {
    /// A node of a cluster with these versions of everything; the others are offered.
    async fn of_a_cluster(part: Part) -> Self {
        let mut stage = Stage::set().await;
        for (kubernetes, kernel) in [(BEFORE, "6.1.90"), (AFTER, "6.1.94")] {
            stage.offer_kubernetes(kubernetes);
            stage.offer_package("linux-image-amd64", &format!("{kernel}-1"), "", &[]);
            stage.offer_package("containerd", &format!("{kernel}+c-1"), "", &[]);
        }
        stage.joins(part);
        stage.registers().await;
        stage.upgrades_to(BEFORE, "6.1.90", None).await;
        stage.start_agent();
        stage.until_has("kubelet", BEFORE).await;
        assert_eq!(stage.calls(), Vec::<String>::new(), "nothing was upgraded");
        stage
    }

    fn offer_kubernetes(&self, version: &str) {
        let program = KUBEADM.replace("VERSION", version);
        let debian = format!("{version}-1.1");
        self.offer_package("kubeadm", &debian, "", &[("usr/bin/kubeadm", &program)]);
        self.offer_package("kubelet", &debian, "", &[]);
    }

    fn joins(&self, part: Part) {
        let folder = self.path("root/etc/kubernetes/manifests");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(self.path("root/etc/kubernetes/kubelet.conf"), "").expect("written");
        if part == Part::ControlPlane {
            fs::write(self.path("root/etc/kubernetes/admin.conf"), "").expect("written");
            let manifest = format!("    image: registry.k8s.io/kube-apiserver:v{BEFORE}\n");
            fs::write(folder.join("kube-apiserver.yaml"), manifest).expect("written");
        }
    }

    /// What orbiter writes.
    async fn upgrades_to(&self, kubernetes: &str, kernel: &str, upgrade: Option<&str>) {
        self.annotates(json!({
            "alpha.node.caos.ch/changes-allowed": "true",
            "alpha.node.caos.ch/upgrade": upgrade,
            "alpha.kubeadm.caos.ch/desired-version": kubernetes,
            "alpha.kubelet.caos.ch/desired-version": kubernetes,
            "alpha.linux-image-amd64.caos.ch/desired-version": kernel,
            "alpha.containerd.caos.ch/desired-version": format!("{kernel}+c"),
        }))
        .await;
    }

    async fn has(&self, package: &str, version: &str) -> bool {
        let annotations = self.node().await["metadata"]["annotations"].take();
        annotations["alpha.node.caos.ch/ready"] == "true"
            && annotations[format!("alpha.{package}.caos.ch/current-version")] == *version
    }

    async fn until_has(&self, package: &str, version: &str) {
        let what = format!("{package} {version}");
        until(&what, async || self.has(package, version).await.then_some(())).await;
    }

    /// Waits until the Node says this.
    async fn until_says(&self, reason: &str, words: &str) {
        let what = format!("{reason}: {words}");
        until(&what, async || {
            let object = self.node().await;
            let condition = condition_of(&object, "PackagesEnsured")?;
            let message = condition["message"].as_str().unwrap_or_default();
            (condition["reason"] == *reason && message.contains(words)).then_some(())
        })
        .await;
    }

    /// The calls of kubeadm, in order.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("root/calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Tells the next kubeadm something.
    fn tells(&self, file: &str, text: &str) {
        fs::write(self.path("root").join(file), text).expect("written");
    }

    async fn until_reached(&self) {
        let reached = self.path("root/reached");
        until("the middle", async || reached.exists().then_some(())).await;
        fs::remove_file(reached).expect("it is there");
    }

    /// What dpkg says of a package: `hold installed 1.0-1`.
    fn status_of(&self, package: &str) -> String {
        let output = Command::new("dpkg-query")
            .arg(format!("--admindir={}", self.path("root/var/lib/dpkg").display()))
            .args([
                "--show",
                "--showformat=${db:Status-Want} ${db:Status-Status} ${Version}",
            ])
            .arg(package)
            .output()
            .expect("dpkg-query runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs the dpkg of the scratch root, as a person would.
    fn dpkg(&self, words: &[&str]) {
        let output = Command::new("dpkg")
            .arg(format!("--root={}", self.path("root").display()))
            .args(words)
            .output()
            .expect("dpkg runs");
        assert!(output.status.success(), "{output:?}");
    }

    /// An agent that is stopped before each call of dpkg that it has not been stopped before.
    fn agent_that_is_stopped_everywhere(&self) -> Command {
        let (dpkg, config) = (self.path("dpkg"), self.path("apt.conf"));
        // What is configured the call does not say: what was unpacked before it.
        let stops = format!(
            "case \"$*\" in *--unpack*|*--configure*) ;; *) exec /usr/bin/dpkg \"$@\";; esac\n\
             call=$(echo \"$*\" | sed 's/--status-fd [0-9]*//; s#/tmp/apt-dpkg-install-[^ ]*##')\n\
             case \"$call\" in *--configure*) call=\"$call after $(cat {unpacked})\";; esac\n\
             if grep -qxF -e \"$call\" {stopped} 2>/dev/null; then\n\
             case \"$call\" in *--unpack*) echo \"$call\" > {unpacked};; esac\n\
             exec /usr/bin/dpkg \"$@\"\nfi\n\
             echo \"$call\" >> {stopped}\ntouch {reached}\nsleep 600",
            unpacked = self.path("unpacked").display(),
            stopped = self.path("stopped").display(),
            reached = self.path("root/reached").display(),
        );
        script(&dpkg, &stops);
        fs::write(&config, format!("Dir::Bin::dpkg \"{}\";\n", dpkg.display())).expect("written");
        let mut agent = self.agent();
        agent.env("APT_CONFIG", config);
        agent
    }
}

#[tokio::test]
async fn an_upgrade_that_is_killed_everywhere_is_done_in_the_end_and_its_steps_once() {
    if let Some(why) = cannot() {
        return Skip::because(why).print();
    }
    let mut stage = Stage::of_a_cluster(Part::ControlPlane).await;
    stage.kill_agent();
    stage.tells("stand-still", "");
    stage.tells("stand-still-at-the-end", "");
    stage.upgrades_to(AFTER, "6.1.94", Some("apply")).await;
    let reached = stage.path("root/reached");
    let mut kills = 0;
    loop {
        stage.start(stage.agent_that_is_stopped_everywhere());
        let is_done = until("the end, or another stop", async || {
            if reached.exists() {
                Some(false)
            } else {
                stage.has("kubelet", AFTER).await.then_some(true)
            }
        })
        .await;
        if is_done {
            break;
        }
        stage.kill_agent();
        fs::remove_file(&reached).expect("it is there");
        kills += 1;
    }
    // To unpack and to configure the kernel, kubeadm and the rest; kubeadm at its begin and its end.
    assert!(
        kills >= 8,
        "{kills} kills: {:?}",
        fs::read_to_string(stage.path("stopped"))
    );
    let call = format!("upgrade apply v{AFTER} --yes --kubeconfig=/etc/kubernetes/admin.conf");
    let begins =
        format!("begins {call} with kubeadm {AFTER}-1.1, kubelet {BEFORE}-1.1, linux-image-amd64 6.1.94-1, ");
    // Killed twice in the middle of kubeadm, and not run again once it had succeeded.
    let ends = format!("ends {call}");
    assert_eq!(stage.calls(), [begins.clone(), begins.clone(), begins, ends]);
    for (package, version) in [
        ("kubeadm", "1.31.1-1.1"),
        ("kubelet", "1.31.1-1.1"),
        ("linux-image-amd64", "6.1.94-1"),
        ("containerd", "6.1.94+c-1"),
    ] {
        assert_eq!(
            stage.status_of(package),
            format!("hold installed {version}"),
            "{package}"
        );
    }
}

#[tokio::test]
async fn a_kubeadm_that_outlives_its_agent_is_waited_for() {
    if let Some(why) = cannot() {
        return Skip::because(why).print();
    }
    let mut stage = Stage::of_a_cluster(Part::Worker).await;
    stage.tells("stand-still", "");
    stage.upgrades_to(AFTER, "6.1.94", Some("node")).await;
    stage.until_reached().await;
    // The agent alone is killed.
    let mut agent = stage.agent.take().expect("it runs");
    agent.kill().expect("it runs");
    agent.wait().expect("it has ended");
    assert_eq!(stage.calls().len(), 1);

    stage.start_agent();
    until("that it waits", async || {
        stage
            .said()
            .contains("still runs: waiting for its end")
            .then_some(())
    })
    .await;
    assert_eq!(stage.calls().len(), 1, "there are not two at the same time");
    stage.tells("go-on", "");
    stage.until_has("kubelet", AFTER).await;
    let call = "upgrade node --kubeconfig=/etc/kubernetes/kubelet.conf";
    let calls = stage.calls();
    let words: Vec<&str> = calls.iter().filter_map(|call| call.split(' ').next()).collect();
    // Nobody knows how the first one ended.
    assert_eq!(words, ["begins", "ends", "begins", "ends"]);
    assert!(calls.iter().all(|one| one.contains(call)), "{calls:?}");
}

#[tokio::test]
async fn what_changes_no_kubernetes_does_not_call_kubeadm() {
    if let Some(why) = cannot() {
        return Skip::because(why).print();
    }
    let stage = Stage::of_a_cluster(Part::ControlPlane).await;
    stage.upgrades_to(BEFORE, "6.1.94", Some("apply")).await;
    stage.until_has("containerd", "6.1.94+c").await;
    assert_eq!(stage.calls(), Vec::<String>::new());
    stage.upgrades_to(AFTER, "6.1.94", Some("apply")).await;
    stage.until_has("kubelet", AFTER).await;
    assert_eq!(stage.calls().len(), 2);
    stage.upgrades_to(AFTER, "6.1.90", Some("node")).await;
    stage.until_has("containerd", "6.1.90+c").await;
    assert_eq!(stage.calls().len(), 2, "it was upgraded already");
}

#[tokio::test]
async fn a_control_plane_whose_cluster_is_not_upgraded_keeps_its_kubelet() {
    if let Some(why) = cannot() {
        return Skip::because(why).print();
    }
    let stage = Stage::of_a_cluster(Part::ControlPlane).await;
    // It is to follow, and nobody has applied the upgrade: its kubeadm changes nothing.
    stage.upgrades_to(AFTER, "6.1.94", Some("node")).await;
    stage.until_says("VersionSkew", "is still 1.30.2").await;
    assert_eq!(stage.status_of("kubelet"), "hold installed 1.30.2-1.1");
    stage.upgrades_to(AFTER, "6.1.94", Some("apply")).await;
    stage.until_has("kubelet", AFTER).await;
}

#[tokio::test]
async fn what_cannot_be_upgraded_is_refused_with_a_reason_and_done_once_it_can() {
    if let Some(why) = cannot() {
        return Skip::because(why).print();
    }
    let stage = Stage::of_a_cluster(Part::Worker).await;
    let is_refused = async |reason: &str, words: &str| {
        stage.until_says(reason, words).await;
        assert_eq!(
            stage.status_of("kubelet"),
            "hold installed 1.30.2-1.1",
            "{reason}"
        );
        let ready = stage.node().await["metadata"]["annotations"]["alpha.node.caos.ch/ready"].take();
        assert_eq!(ready, "false", "{reason}");
    };
    // Nothing is changed before these are as they should be.
    let conf = stage.path("root/etc/kubernetes/kubelet.conf");
    fs::remove_file(&conf).expect("it is there");
    stage.upgrades_to(AFTER, "6.1.94", Some("node")).await;
    is_refused("NotJoined", "join it with `kubeadm join`").await;
    stage.upgrades_to(AFTER, "6.1.94", Some("apply")).await;
    is_refused("NotJoined", "only a control plane").await;
    fs::write(&conf, "").expect("written");

    stage.offer_kubernetes("1.34.0");
    stage.upgrades_to("1.34.0", "6.1.94", Some("node")).await;
    is_refused("VersionSkew", "Upgrade to a release in between first").await;

    stage.offer_package("kubelet", "1.31.7-1.1", "Installed-Size: 999999999999\n", &[]);
    stage.upgrades_to(AFTER, "6.1.94", Some("node")).await;
    stage
        .annotates(json!({"alpha.kubelet.caos.ch/desired-version": "1.31.7"}))
        .await;
    is_refused("DiskFull", "make room").await;

    stage.offer_package("foreign", "1.0-1", "", &[]);
    stage.offer_package("foreign", "2.0-1", "", &[]);
    let foreign = stage.path("repository/foreign_1.0-1_all.deb");
    stage.dpkg(&["--install", &foreign.display().to_string()]);
    let hold = stage.path("hold");
    fs::write(&hold, "foreign hold\n").expect("written");
    let selections = Command::new("dpkg")
        .arg(format!("--root={}", stage.path("root").display()))
        .arg("--set-selections")
        .stdin(fs::File::open(&hold).expect("it is there"))
        .status();
    assert!(selections.expect("dpkg runs").success());
    stage.upgrades_to(AFTER, "6.1.94", Some("node")).await;
    stage
        .annotates(json!({"alpha.foreign.caos.ch/desired-version": "2.0"}))
        .await;
    is_refused("PackageHeld", "apt-mark unhold foreign").await;
    assert_eq!(stage.status_of("foreign"), "hold installed 1.0-1");
    assert_eq!(stage.status_of("linux-image-amd64"), "hold installed 6.1.90-1");
    assert_eq!(stage.calls(), Vec::<String>::new());

    // From here on kernel and kubeadm are there before it is seen.
    stage.offer_package("kubeadm", "1.31.2-1.1", "", &[]);
    stage
        .annotates(json!({
            "alpha.foreign.caos.ch/desired-version": null, "alpha.kubeadm.caos.ch/desired-version": "1.31.2",
        }))
        .await;
    is_refused("KubeadmMissing", "has no /usr/bin/kubeadm").await;

    stage.tells("fail", "[upgrade] the cluster cannot be reached\n");
    stage.upgrades_to(AFTER, "6.1.94", Some("node")).await;
    is_refused("UpgradeFailed", "the cluster cannot be reached").await;
    stage.tells("fail", "write: No space left on device\n");
    is_refused("DiskFull", "make room").await;

    fs::remove_file(stage.path("root/fail")).expect("it is there");
    stage.until_has("kubelet", AFTER).await;
    stage.until_says("Current", "").await;
}
