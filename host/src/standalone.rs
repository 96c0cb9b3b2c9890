//! Standalone: the embedded API on the host's clock, in memory or in the data folder, served if asked for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use polity_standalone::{Access, Api, Store};

use crate::clock::Clock;
use crate::data::{Data, OBJECTS};
use crate::private;

/// The simulated cloud as older versions kept it.
const OLD_SIM: &str = "cloud-sim.json";

/// Opens the embedded API: in the data folder if there is one.
pub fn open(clock: &Arc<Clock>, data: Option<&Data>) -> Result<Api> {
    let now = clock.clone();
    let clock: polity_standalone::Clock =
        Arc::new(move || UNIX_EPOCH + Duration::from_millis(now.now().unix));
    let mut seed = [0; 16];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .context("the system has no randomness")?;
    let store = match data {
        None => Store::in_memory(clock, seed),
        Some(data) => {
            refuse_what_does_not_go_together(data)?;
            Store::open(data.database()?, clock, seed).context("cannot open the data of the embedded API")?
        }
    };
    Ok(Api::new(Arc::new(store)))
}

/// A simulated cloud whose objects are gone would keep machines that nobody knows any more, or lose those of others. So
/// would objects whose cloud begins anew, because it stands in a file that is read no more.
fn refuse_what_does_not_go_together(data: &Data) -> Result<()> {
    let (has_objects, clouds) = data.holds()?;
    let path = data.path().display();
    if clouds.iter().any(|cloud| cloud == OLD_SIM) {
        bail!(
            "{path} holds {OLD_SIM}, which an older version wrote and this one does not read: begin anew with an empty folder"
        );
    }
    if let (false, Some(cloud)) = (has_objects, clouds.first()) {
        bail!(
            "{path} holds {cloud} but no {OBJECTS}, which has the objects that go with it: put {OBJECTS} back, or begin \
             anew with an empty folder"
        );
    }
    Ok(())
}

/// A server that kubectl can talk to.
pub struct Served {
    /// Where the kubeconfig was written.
    pub kubeconfig: std::path::PathBuf,
    /// Where it listens.
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Served {
    /// Ends the server at once.
    pub fn stop(&self) {
        self.task.abort();
    }
}

/// Serves the API on loopback with a fresh token, and writes a kubeconfig that only this user can read.
pub async fn serve(api: Api, port: u16, kubeconfig: &std::path::Path) -> Result<Served> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port))
        .await
        .with_context(|| format!("cannot listen on 127.0.0.1:{port}"))?;
    let address = listener.local_addr()?;
    let mut secret = [0; 32];
    rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())
        .context("the system has no randomness")?;
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
