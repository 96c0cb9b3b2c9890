//! A real Kubernetes API server: kube-apiserver, etcd and kubectl as published, one server for each test, and
//! kube-controller-manager if a test wants it.
//!
//! # Flow
//!
//! [`Assets::find`] lets `tests/assets/fetch` build the programs, which takes minutes once per machine.
//! [`KubeServer::start`] runs them on free loopback ports, with all their files in a temporary folder.
//! [`KubeServer::start_controllers`] adds the controllers that count pods for disruption budgets, collect
//! garbage and empty namespaces. Dropping the [`KubeServer`] kills its processes, so keep it in the test and
//! not in a `static`.
//!
//! # Guarantees
//!
//! - The kubeconfig stays valid across [`KubeServer::kill_apiserver`] and [`KubeServer::restart_apiserver`].
//! - Nothing outside the temporary folder is read or written, the user's `~/.kube` included.
//!
//! # Caveats
//!
//! - The functions block: a test on a tokio runtime calls them before the runtime starts, or from
//!   `spawn_blocking`.
//! - There is no kubelet and no scheduler, and there are only those controllers. A test must do the work of
//!   the others.
//! - Each server takes about 350 MB of memory, and its controllers 90 MB.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::skip::Skip;

/// The exit code of `tests/assets/fetch` if Go is missing or too old.
const NO_GO: i32 = 3;

/// A server is ready within 2 s on an idle machine. This leaves time for one that compiles meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// The interval between looks at a server that is not ready.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How often a server that ends at once (another process took its port) is started with other ports.
const PORT_ATTEMPTS: usize = 5;

const TOKEN: &str = "polity-tests";

/// What [`KubeServer::start_controllers`] starts, by the names of Kubernetes 1.36.
const CONTROLLERS: &str = "disruption-controller,garbage-collector-controller,namespace-controller";

/// The folder with kube-apiserver, etcd and kubectl, and perhaps kube-controller-manager.
#[derive(Debug, Clone)]
pub struct Assets {
    folder: PathBuf,
}

impl Assets {
    /// Finds the programs, building them when this machine has none: minutes, with progress on stderr.
    /// The answer is kept for the life of the process.
    ///
    /// # Errors
    ///
    /// [`Skip`] where they would have to be built and Go is absent or too old.
    ///
    /// # Panics
    ///
    /// When the build fails; and instead of the skip when `POLITY_NO_SKIP=1`.
    pub fn find() -> Result<Self, Skip> {
        static FOUND: OnceLock<Found> = OnceLock::new();
        FOUND
            .get_or_init(|| fetch(&[]))
            .folder("kube-apiserver")
            .map(|folder| Assets { folder })
    }

    /// As [`Assets::find`], with kube-controller-manager.
    ///
    /// # Errors
    ///
    /// As those.
    ///
    /// # Panics
    ///
    /// As that.
    pub fn find_with_controllers() -> Result<Self, Skip> {
        static FOUND: OnceLock<Found> = OnceLock::new();
        FOUND
            .get_or_init(|| fetch(&["kube-apiserver", "etcd", "kubectl", "kube-controller-manager"]))
            .folder("kube-apiserver")
            .map(|folder| Assets { folder })
    }

    /// Where one of the programs is.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The real kubectl, talking to the server that `kubeconfig` names; its caches go to `home`.
    #[must_use]
    pub fn kubectl(&self, kubeconfig: &Path, home: &Path) -> Command {
        let mut command = Command::new(self.program("kubectl"));
        command
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", home)
            .env_remove("KUBECACHEDIR")
            .env_remove("KUBERC");
        command
    }
}

/// One kube-apiserver with an etcd of its own, killed when dropped.
#[derive(Debug)]
pub struct KubeServer {
    // Dropped in this order: the servers before the folder that they write to.
    controllers: Option<Server>,
    apiserver: Option<Server>,
    _etcd: Server,
    etcd_url: String,
    port: u16,
    assets: Assets,
    data: TempDir,
}

impl KubeServer {
    /// Starts etcd and kube-apiserver with everything they write in `data`, and waits until they serve.
    ///
    /// # Panics
    ///
    /// When they do not; with the end of the server's log.
    #[must_use]
    pub fn start(assets: &Assets, data: TempDir) -> Self {
        let (etcd, etcd_url) = start_etcd(assets, data.path());
        fs::write(
            data.path().join("tokens.csv"),
            format!("{TOKEN},admin,1,\"system:masters\"\n"),
        )
        .expect("write the tokens");
        let mut server = Self {
            controllers: None,
            apiserver: None,
            _etcd: etcd,
            etcd_url,
            port: 0,
            assets: assets.clone(),
            data,
        };
        for _ in 0..PORT_ATTEMPTS {
            server.port = free_port();
            server.write_kubeconfig();
            match server.run_apiserver() {
                Ok(()) => return server,
                Err(log) if log.contains("address already in use") => {}
                Err(log) => panic!("kube-apiserver did not become ready: {log}"),
            }
        }
        panic!("kube-apiserver found no free port in {PORT_ATTEMPTS} attempts")
    }

    /// The kubeconfig of an administrator; it trusts the server's own certificate.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.data.path().join("kubeconfig")
    }

    /// The folder that this server writes to, deleted with it.
    #[must_use]
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// Ends the API server with SIGKILL; etcd, and so what it stored, remains. Nothing if it is not running.
    pub fn kill_apiserver(&mut self) {
        self.apiserver = None;
    }

    /// Starts the API server again (ending it first if it runs), at the same address, and waits until it serves.
    ///
    /// # Panics
    ///
    /// When it does not; with the end of its log.
    pub fn restart_apiserver(&mut self) {
        self.kill_apiserver();
        if let Err(log) = self.run_apiserver() {
            panic!("kube-apiserver did not become ready again: {log}");
        }
    }

    /// Starts kube-controller-manager, of its controllers those for disruption budgets, garbage and namespaces, and
    /// waits until it serves. Its garbage collector learns of new kinds every 30 s, of those that are there at once:
    /// start it after the CustomResourceDefinitions.
    ///
    /// # Panics
    ///
    /// When it does not serve, with the end of its log; when the assets were found without it.
    pub fn start_controllers(&mut self) {
        for _ in 0..PORT_ATTEMPTS {
            match self.run_controllers(free_port()) {
                Ok(()) => return,
                Err(log) if log.contains("address already in use") => {}
                Err(log) => panic!("kube-controller-manager did not become ready: {log}"),
            }
        }
        panic!("kube-controller-manager found no free port in {PORT_ATTEMPTS} attempts")
    }

    /// An administrator's client, which repeats nothing by itself: a refusal is an answer.
    ///
    /// # Panics
    ///
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> kube::Client {
        kube::Client::try_from(self.config().await).expect("a client")
    }

    /// A client of a service account, which is allowed what RBAC says and nothing else.
    ///
    /// # Panics
    ///
    /// When the kubeconfig cannot be used.
    pub async fn client_of(&self, namespace: &str, account: &str) -> kube::Client {
        let mut config = self.config().await;
        config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:{account}"));
        kube::Client::try_from(config).expect("a client")
    }

    async fn config(&self) -> kube::Config {
        let kubeconfig = kube::config::Kubeconfig::read_from(self.kubeconfig()).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
        let mut config = config.expect("a configuration");
        config.default_retry = false;
        config
    }

    /// Runs kubectl to its end. The answer may be a failure: that is for the test to judge.
    ///
    /// # Panics
    ///
    /// When kubectl cannot be run at all.
    #[must_use]
    pub fn kubectl<A: AsRef<OsStr>>(&self, args: &[A]) -> Output {
        self.kubectl_command().args(args).output().expect("run kubectl")
    }

    /// kubectl with this server's kubeconfig, for what needs a standard input or runs on (`get -w`).
    #[must_use]
    pub fn kubectl_command(&self) -> Command {
        self.assets.kubectl(&self.kubeconfig(), self.data.path())
    }

    /// Starts the API server on `self.port` and waits until it serves; otherwise the end of its log.
    fn run_apiserver(&mut self) -> Result<(), String> {
        let data = self.data.path().display();
        let key = format!("{data}/pki/apiserver.key");
        let mut command = Command::new(self.assets.program("kube-apiserver"));
        command.args([
            format!("--etcd-servers={}", self.etcd_url),
            format!("--cert-dir={data}/pki"),
            format!("--secure-port={}", self.port),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            // The key of the certificate that it makes for itself before it reads this one: any RSA key will do.
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            "--authorization-mode=RBAC".into(),
            format!("--token-auth-file={data}/tokens.csv"),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            // Nothing here makes the `default` service account that it asks of every Pod.
            "--disable-admission-plugins=ServiceAccount".into(),
        ]);
        let mut apiserver = Server::spawn(&mut command, self.data.path().join("kube-apiserver.log"));
        apiserver.wait_until(|| self.serves())?;
        self.apiserver = Some(apiserver);
        Ok(())
    }

    /// Starts kube-controller-manager on this port and waits until it serves; otherwise the end of its log.
    fn run_controllers(&mut self, port: u16) -> Result<(), String> {
        let data = self.data.path().display();
        let mut command = Command::new(self.assets.program("kube-controller-manager"));
        command.args([
            format!("--kubeconfig={data}/kubeconfig"),
            format!("--cert-dir={data}/pki-controllers"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".into(),
            "--use-service-account-credentials=false".into(),
            // There is one, and a test does not wait for a lease of its predecessor.
            "--leader-elect=false".into(),
            format!("--controllers={CONTROLLERS}"),
        ]);
        let mut controllers =
            Server::spawn(&mut command, self.data.path().join("kube-controller-manager.log"));
        controllers.wait_until(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        self.controllers = Some(controllers);
        Ok(())
    }

    /// Whether requests are answered. The `default` namespace may come a moment after `/readyz` says yes.
    fn serves(&self) -> bool {
        ["/readyz", "/api/v1/namespaces/default"].iter().all(|path| {
            self.kubectl(&["get", "--raw", path, "--request-timeout=5s"])
                .status
                .success()
        })
    }

    fn write_kubeconfig(&self) {
        let authority = self.data.path().join("pki/apiserver.crt");
        let text = format!(
            "apiVersion: v1
kind: Config
current-context: real
clusters:
- name: real
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority: {authority:?}
users:
- name: admin
  user:
    token: {TOKEN}
contexts:
- name: real
  context:
    cluster: real
    user: admin
",
            port = self.port,
        );
        fs::write(self.kubeconfig(), text).expect("write the kubeconfig");
    }
}

/// What came of looking for the programs.
#[derive(Debug)]
pub(crate) enum Found {
    Here(PathBuf),
    Missing,
    Failed(String),
}

impl Found {
    /// Where the programs are, of which this is one.
    pub(crate) fn folder(&self, program: &str) -> Result<PathBuf, Skip> {
        match self {
            Found::Here(folder) => Ok(folder.clone()),
            Found::Failed(reason) => panic!("{reason}"),
            Found::Missing => Err(Skip::because(format!(
                "there is no {program} here, and no Go that could build it (tests/assets/README.md)",
            ))),
        }
    }
}

/// A running program, ended with SIGKILL when dropped.
#[derive(Debug)]
struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    fn spawn(command: &mut Command, log: PathBuf) -> Self {
        let output = File::create(&log).expect("create a log");
        let errors = output.try_clone().expect("share a log");
        let child = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        Self {
            child: child.unwrap_or_else(|error| panic!("start {command:?}: {error}")),
            log,
        }
    }

    /// Waits until `ready`; if the program ends first, or takes too long, the end of its log.
    fn wait_until(&mut self, ready: impl Fn() -> bool) -> Result<(), String> {
        let started = Instant::now();
        while started.elapsed() < READY_WITHIN {
            if let Some(status) = self.child.try_wait().expect("look at a child") {
                return Err(format!("it ended with {status}\n{}", self.log_end()));
            }
            if ready() {
                return Ok(());
            }
            thread::sleep(LOOK_EVERY);
        }
        Err(format!("nothing within {READY_WITHIN:?}\n{}", self.log_end()))
    }

    fn log_end(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts etcd and says where it answers.
fn start_etcd(assets: &Assets, data: &Path) -> (Server, String) {
    for _ in 0..PORT_ATTEMPTS {
        let (port, peer_port) = (free_port(), free_port());
        let (url, peer_url) = (
            format!("http://127.0.0.1:{port}"),
            format!("http://127.0.0.1:{peer_port}"),
        );
        let mut command = Command::new(assets.program("etcd"));
        command.arg("--data-dir").arg(data.join("etcd")).args([
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=default={peer_url}"),
            // The data need not survive the machine, only the API server.
            "--unsafe-no-fsync".into(),
        ]);
        let mut etcd = Server::spawn(&mut command, data.join("etcd.log"));
        match etcd.wait_until(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()) {
            Ok(()) => return (etcd, url),
            Err(log) if log.contains("address already in use") => {}
            Err(log) => panic!("etcd did not become ready: {log}"),
        }
    }
    panic!("etcd found no free port in {PORT_ATTEMPTS} attempts")
}

/// A loopback port that nothing listens on.
///
/// From below the ranges that systems hand out by themselves (Linux from 32768, macOS from 49152): otherwise, while
/// the API server is down, an outgoing connection could be given its port, one to that very port included.
fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    // Processes that start together begin in different places.
    let next =
        NEXT.get_or_init(|| AtomicU16::new((std::process::id().wrapping_mul(101) % u32::from(COUNT)) as u16));
    (0..COUNT)
        .map(|_| FIRST + next.fetch_add(1, Ordering::Relaxed) % COUNT)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("no free loopback port from 20000 to 31999")
}

/// Runs `tests/assets/fetch`, its progress on our stderr.
pub(crate) fn fetch(programs: &[&str]) -> Found {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/fetch");
    let output = match Command::new(script)
        .args(programs)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
    {
        Ok(output) => output,
        Err(error) => return Found::Failed(format!("cannot run {script}: {error}")),
    };
    match output.status.code() {
        Some(0) => {
            let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim_end());
            Found::Here(folder)
        }
        Some(NO_GO) => Found::Missing,
        _ => Found::Failed(format!(
            "{script} ended with {}: see what it printed above",
            output.status
        )),
    }
}
