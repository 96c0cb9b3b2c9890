//! Standalone: the embedded API on the host's clock. It keeps objects in memory or in the data folder, and
//! can be served to kubectl.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use polity_standalone::{Access, Api, Store};

use crate::clock::Clock;
use crate::data::{Data, OBJECTS};
use crate::private;
use crate::sim;

/// Opens the embedded API, in the data folder if one is given. From the same seed and the same writes come the same uids;
/// without a seed nobody can predict them.
pub fn open(clock: &Arc<Clock>, data: Option<&Data>, seed: Option<u64>) -> Result<Api> {
    let now = clock.clone();
    let clock: polity_standalone::Clock =
        Arc::new(move || UNIX_EPOCH + Duration::from_millis(now.now().unix.0));
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .context("the operating system returned no random bytes")?;
    let seed = seed.map_or(random, |seed| u128::from(seed).to_be_bytes());
    let store = match data {
        None => Store::in_memory(clock, seed),
        Some(data) => {
            refuse_what_does_not_go_together(data)?;
            Store::open(data.database()?, clock, seed).context("cannot open the data of the embedded API")?
        }
    };
    Ok(Api::new(Arc::new(store)))
}

/// Refuses a data folder that holds only one of two parts that belong together. Machines of a cloud without
/// their objects would be orphans, or be taken for those of other objects. Objects without their cloud would
/// lose all their machines; the cloud in an outdated file is not read, so it counts as missing.
fn refuse_what_does_not_go_together(data: &Data) -> Result<()> {
    let (has_objects, clouds) = data.holds()?;
    let path = data.path().display();
    if let Some(outdated) = clouds.iter().find(|cloud| sim::is_outdated(cloud)) {
        bail!(
            "{path} holds {outdated}, which an older version wrote and this version cannot read: start with an empty folder"
        );
    }
    if let (false, Some(cloud)) = (has_objects, clouds.first()) {
        bail!(
            "{path} holds {cloud} but not {OBJECTS}, the objects that belong to it: put {OBJECTS} back, or start with \
             an empty folder"
        );
    }
    Ok(())
}

/// The embedded API, served to kubectl.
pub struct Served {
    /// The file of the kubeconfig.
    pub kubeconfig: std::path::PathBuf,
    /// The address on which the server listens.
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    /// Ends the server at once.
    pub fn stop(&self) {
        self.task.abort();
    }
}

/// Serves the API on the loopback interface with a new token, and writes a kubeconfig that only this user can
/// read.
pub async fn serve(api: Api, port: u16, kubeconfig: &std::path::Path) -> Result<Served> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port))
        .await
        .with_context(|| format!("cannot listen on 127.0.0.1:{port}"))?;
    let address = listener.local_addr()?;
    let mut secret = [0; 32];
    rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
        .context("the operating system returned no random bytes")?;
    let access = Access::new(&crate::display::hex(&secret)).context("cannot make a certificate")?;
    private::write(kubeconfig, access.kubeconfig(address).as_bytes())
        .with_context(|| format!("cannot write {}", kubeconfig.display()))?;
    let task = tokio::spawn(async move {
        if let Err(e) = polity_standalone::serve(listener, api, access, std::future::pending()).await {
            tracing::error!("the embedded API is no longer served: {e}");
        }
    });
    Ok(Served {
        kubeconfig: kubeconfig.to_owned(),
        address,
        task,
    })
}
