//! EC2 and STS by moto, in a process of its own.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::server::Server;
use crate::skip::{NO_PYTHON, Skip};

/// Makes the Python that has moto and what it needs. Its answers are those that the drivers were written against.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/python");
/// The account of keys that nobody gave out.
pub const ACCOUNT: &str = "123456789012";
/// The program that runs it.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/moto/aws.py");

/// A server, ended when dropped.
pub struct Moto {
    server: Server,
}

impl Moto {
    /// Starts a server without anything in it. Where moto is not here yet, pip brings it, once.
    ///
    /// # Errors
    /// [`Skip`] where Python is missing.
    ///
    /// # Panics
    /// The server does not start; instead of the skip when `POLITY_NO_SKIP=1`.
    pub fn start() -> Result<Self, Skip> {
        static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
        let Some(python) = MADE.get_or_init(python) else {
            return Err(Skip::because(
                "Python with venv and pip, which run moto, is not here",
            ));
        };
        let server = Server::start(|address| {
            let mut moto = Command::new(python);
            moto.args([PROGRAM, &address.port().to_string()]);
            moto
        });
        Ok(Moto { server })
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> &str {
        self.server.address()
    }

    /// The response to a request of EC2's API in an account: the fields of its form.
    ///
    /// # Panics
    /// There is none.
    pub fn ec2(&self, account: &str, form: &str) -> String {
        let body = format!("Version=2016-11-15&{form}");
        let scope = "Credential=nobody/20260101/eu-west-1/ec2/aws4_request";
        let request = format!(
            "POST / HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/x-www-form-urlencoded\r\n\
             x-moto-account-id: {account}\r\n\
             authorization: AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=none\r\ncontent-length: {}\r\n\r\n{body}",
            self.address(),
            body.len()
        );
        let mut stream = TcpStream::connect(self.address()).expect("it listens");
        stream.write_all(request.as_bytes()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }

    /// The instances of an account in this state, by their ids.
    pub fn instances(&self, account: &str, state: &str) -> Vec<String> {
        let filter =
            format!("Action=DescribeInstances&Filter.1.Name=instance-state-name&Filter.1.Value.1={state}");
        let answer = self.ec2(account, &filter);
        let ids = answer.split("<instanceId>").skip(1);
        ids.filter_map(|rest| Some(rest.split_once('<')?.0.to_owned()))
            .collect()
    }
}

/// The Python that has moto; `None` where Python is missing.
fn python() -> Option<PathBuf> {
    let made = Command::new(PYTHON)
        .arg("moto")
        .stderr(Stdio::inherit())
        .output()
        .expect("tests/assets/python runs");
    if made.status.code() == Some(NO_PYTHON) {
        return None;
    }
    assert!(
        made.status.success(),
        "what moto needs is not installed: see what was printed above"
    );
    let path = String::from_utf8(made.stdout).expect("a path");
    Some(path.trim_end().into())
}
