//! Serves an empty API on loopback, to try kubectl on by hand:
//! `cargo run -p polity-standalone --example serve -- KUBECONFIG [DATABASE]`

use std::{env, error::Error, fs, sync::Arc, time::SystemTime};

use polity_standalone::{Access, Api, Store, serve};
use tokio::net::TcpListener;

/// The token is fixed: everybody on this machine may try.
const TOKEN: &str = "try-me";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let config = arguments
        .next()
        .ok_or("the path of the kubeconfig to write is missing")?;
    let clock = Arc::new(SystemTime::now);
    let store = match arguments.next() {
        None => Store::in_memory(clock, [1; 16]),
        Some(path) => {
            let mut options = fs::OpenOptions::new();
            let file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            Store::open(file, clock, [1; 16])?
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let access = Access::new(TOKEN)?;
    fs::write(config, access.kubeconfig(listener.local_addr()?))?;
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    serve(listener, Api::new(Arc::new(store)), access, interrupted).await?;
    Ok(())
}
