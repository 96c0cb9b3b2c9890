//! The hostile driver (`tests/hostile/driver`) at a server of a test: connections whose configuration says what the driver does,
//! and the operations that a host would ask for.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};

use polity::clock::Clock;
use polity_clouds::{BoxFuture, Cloud as _, Gateway, SecretRef, SecretResolver, Sessions};
use polity_core::call::{CloudRequest, Commit, Session};
use polity_core::contract::{Answer, Failure};
use polity_drivers::{Connection, Credentials, CurrentTransport, DriverCloud, Rates};
use polity_http::login::Values;
use polity_http::{Address, Pace, Rate, Reach, Tls, Transport};
use polity_sandbox::driver::Driver;
use serde_json::{Value, json};

use crate::guests;

/// The token with which the host logs in.
pub const TOKEN: &str = "hunter22-token";
/// The value of the sealed argument, where a test gives no other one.
pub const SEALED: &str = "sealed-by-hunter22";

/// A server that answers each request by what it read, and keeps what it read.
pub struct Server {
    /// Where it listens.
    pub address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// One that does this with each request, one after another.
    ///
    /// # Panics
    /// There is no port for it.
    pub fn start(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = seen.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let request = read(&stream);
                kept.lock().expect("unpoisoned").push(request.clone());
                answer(&request, &mut stream);
            }
        });
        Server { address, seen }
    }

    /// One that answers the same to everything.
    pub fn saying(answer: impl Into<String>) -> Self {
        let answer = answer.into();
        Server::start(move |_, stream| say(stream, &answer))
    }

    /// One that answers each request with itself.
    pub fn echo() -> Self {
        Server::start(|request, stream| say(stream, &ok(&json!({"echo": request}).to_string())))
    }

    /// The requests that it read.
    ///
    /// # Panics
    /// What it does with a request panicked.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("unpoisoned").clone()
    }
}

/// Writes a response.
pub fn say(stream: &mut TcpStream, text: &str) {
    // The client may have closed the connection.
    let _ = stream.write_all(text.as_bytes());
}

/// A response with this body.
pub fn ok(body: &str) -> String {
    status(200, "", body)
}

/// A response with these lines of headers.
pub fn status(code: u16, header: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {code} X\r\nconnection: close\r\n{header}content-length: {length}\r\n\r\n{body}")
}

/// The whole of a request.
pub fn read(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut text, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        text.push_str(&line);
    }
    let mut body = vec![0; length];
    // A client that breaks off has sent less.
    let _ = reader.read_exact(&mut body);
    text + &String::from_utf8_lossy(&body)
}

/// The driver, compiled once.
///
/// # Panics
/// It does not load.
pub fn driver() -> Arc<Driver> {
    static DRIVER: OnceLock<Arc<Driver>> = OnceLock::new();
    let loaded = || guests::sandbox().load_driver(guests::hostile_driver());
    DRIVER.get_or_init(|| loaded().expect("it loads")).clone()
}

/// The driver with these fields of its manifest.
///
/// # Panics
/// It does not load.
pub fn driver_with(fields: &Value) -> Arc<Driver> {
    let loaded = guests::sandbox().load_driver(&guests::hostile_driver_with(fields));
    loaded.expect("it loads")
}

/// Logs in with [`TOKEN`], also as keys of AWS.
struct Token;

impl Credentials for Token {
    fn values(&self) -> BoxFuture<'_, Result<(String, Values), Failure>> {
        let entries = ["token", "accessKeyID", "secretAccessKey"];
        let values = Values::from(entries.map(|entry| (entry.to_owned(), TOKEN.to_owned())));
        Box::pin(std::future::ready(Ok(("digest".to_owned(), values))))
    }
}

/// Resolves each reference to the same value.
struct Of(String);

impl SecretResolver for Of {
    fn resolve<'a>(&'a self, _: &'a Session, _: &'a SecretRef) -> BoxFuture<'a, Result<Vec<u8>, Failure>> {
        Box::pin(std::future::ready(Ok(self.0.clone().into())))
    }
}

/// A connection to a server at this address, whose driver does these steps.
///
/// # Panics
/// The address, or that of the proxy, is none.
pub fn connection(address: &str, steps: &Value, proxy: Option<&str>) -> Connection {
    let api = Address::read(&format!("http://{address}")).expect("an address");
    let transport = Transport::new(&Tls::default(), proxy, None).expect("a transport");
    Connection {
        name: "hostile".to_owned(),
        configuration: json!({"steps": steps}),
        endpoints: BTreeMap::from([("api".to_owned(), api)]),
        region: String::new(),
        transport: Arc::new(CurrentTransport::new(Ok(transport))),
        credentials: Some(Box::new(Token)),
        longest: polity_clouds::catalogue::LONGEST,
        rates: Rates::default(),
        hosts: Arc::default(),
        reach: Arc::new(reach()),
        keeps: None,
    }
}

/// Networks in which there are the API server, the host's node and services of clouds for their machines, too.
fn reach() -> Reach {
    let networks = ["10.0.0.0/8", "168.63.0.0/16", "100.64.0.0/10", "fd00::/8"];
    let networks = networks.map(|network| network.parse().expect("a network"));
    let [api_server, node] = ["10.0.0.1", "10.0.3.7"].map(|ip| ip.parse().expect("an address"));
    Reach::new([], networks.into(), vec![api_server]).on_node(vec![node])
}

/// A connection as a cloud, whose sealed arguments have this value.
///
/// # Panics
/// The connection is none.
pub fn cloud(connection: Connection, sealed: &str) -> Gateway<DriverCloud> {
    cloud_by(driver(), connection, sealed)
}

/// The same by this driver.
///
/// # Panics
/// The connection is none for this driver.
pub fn cloud_by(driver: Arc<Driver>, connection: Connection, sealed: &str) -> Gateway<DriverCloud> {
    let clock = || Arc::new(Clock::real());
    let cloud = DriverCloud::new(driver, connection, Arc::new(Pace::default()), clock());
    let secrets = Arc::new(Of(sealed.to_owned()));
    Gateway::new(cloud.expect("a connection"), secrets, clock(), Sessions::new(1)).expect("a gateway")
}

/// A connection to a server at this address as a cloud, to which requests go as fast as they come.
pub fn unpaced(address: &str, steps: &Value, sealed: &str) -> Gateway<DriverCloud> {
    let fast = Rate {
        per_second: 1e6,
        burst: 1e6,
    };
    let rates = Rates {
        reads: fast,
        changes: fast,
        creates: None,
    };
    let connection = connection(address, steps, None);
    cloud(Connection { rates, ..connection }, sealed)
}

/// What a pass asks for; a create has a sealed argument.
pub fn request(operation: &str) -> CloudRequest {
    let mut arguments = json!({"name": "m"});
    if operation == "machine.create" {
        arguments["userData"] = json!({"$secret": {"name": "s", "key": "k"}});
    }
    CloudRequest {
        session: Session {
            cloud: "hostile".to_owned(),
            handle: None,
            owner: "uid".to_owned(),
            tenant: "team-a".to_owned(),
            tenant_queue: "".into(),
            namespace: Some("team-a".to_owned()),
        },
        operation: operation.to_owned(),
        arguments,
        key: None,
    }
}

/// What an operation comes to; a create in its two parts.
///
/// # Errors
/// What the operation fails with.
pub async fn come_to(cloud: &Gateway<DriverCloud>, operation: &str) -> Answer {
    let mut request = request(operation);
    if operation != "machine.create" {
        return cloud.perform(request).await;
    }
    let prepared = cloud.prepare(request.clone()).await?;
    request.key = Some("key".to_owned());
    cloud.commit(Commit { request, prepared }).await
}

/// A step that sends a harmless request.
pub fn look() -> Value {
    json!({"send": [{}]})
}

/// A step with an answer that the catalogue allows.
pub fn fine() -> Value {
    json!({"answer": {"providerID": "p"}})
}

/// A value with as many lines that count as the largest value has.
pub fn lines() -> String {
    let line = |n: usize| format!("{:01$}\n", n, 20 + n % 40);
    (0..)
        .map(line)
        .scan(0, |sum, line| {
            *sum += line.len();
            (*sum < 65_000).then_some(line)
        })
        .collect()
}

/// A document with two hundred thousand fields.
pub fn fields() -> String {
    let fields: Vec<String> = (0..200_000).map(|n| format!("\"field-{n}\":1")).collect();
    format!("{{{}}}", fields.join(","))
}
