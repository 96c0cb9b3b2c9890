//! Tests of signatures, and of logins at a server of the test.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use tokio::time::Instant;

use super::*;
use crate::transport::{Tls, Transport};

/// A server that answers each request by its first line and body, and records all requests.
struct Server {
    address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> Self {
        Server::with_headers("", answer)
    }

    /// A server whose responses also have these header lines.
    fn with_headers(headers: &'static str, answer: impl Fn(&str) -> (u16, String) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let request = read(&stream);
                let (status, body) = answer(&request);
                kept.lock().expect("unpoisoned").push(request);
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} X\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
                );
                let mut stream = stream;
                // The client may have closed the connection.
                let _ = stream.write_all((head + &body).as_bytes());
            }
        });
        Server { address, seen }
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("unpoisoned").clone()
    }
}

/// The first line, the headers and the body of a request.
fn read(stream: &TcpStream) -> String {
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
    reader.read_exact(&mut body).expect("the body");
    text + &String::from_utf8_lossy(&body)
}

/// A fake STS. It gives each assumed role its own keys, which expire at this time.
fn sts(expires: fn(&str) -> &'static str) -> Server {
    Server::start(move |request| {
        let body = request.lines().last().unwrap_or_default();
        let field = |name: &str| {
            let found = body
                .split('&')
                .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            found.unwrap_or_default().to_owned()
        };
        let action = field("Action");
        let role = field("RoleArn")
            .rsplit("%2F")
            .next()
            .unwrap_or_default()
            .to_owned();
        let result = match action.as_str() {
            "GetCallerIdentity" => {
                "<Arn>arn:aws:sts::2:assumed-role/x</Arn><Account>2</Account><UserId>u</UserId>".to_owned()
            }
            _ if role == "forbidden" => {
                let error = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not with secret-key-1, no</Message></Error></ErrorResponse>";
                return (403, error.to_owned());
            }
            _ => format!(
                "<Credentials><AccessKeyId>ID-{role}</AccessKeyId><SecretAccessKey>key-{role}</SecretAccessKey>\
                 <SessionToken>token-{role}</SessionToken><Expiration>{}</Expiration></Credentials>",
                expires(&role)
            ),
        };
        (
            200,
            format!("<{action}Response><{action}Result>{result}</{action}Result></{action}Response>"),
        )
    })
}

const NOON: &str = "2026-11-23T12:00:00Z";
const ONE: &str = "2026-11-23T13:00:00Z";

/// Logs in at these servers, with these variables of the host.
async fn at<T>(
    server: &Server,
    variables: &[(&str, String)],
    login: impl AsyncFnOnce(&At<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let transport = Transport::new(&Tls::default(), None, None).expect("a transport");
    let sts = Address::read(&format!("http://{}", server.address)).expect("an address");
    let endpoints = BTreeMap::from([("sts".to_owned(), sts)]);
    let variables: BTreeMap<String, String> = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let environment = move |name: &str| variables.get(name).cloned();
    login(&At {
        transport: &transport,
        endpoints: &endpoints,
        region: "eu-west-1",
        now: 0,
        until: Instant::now() + Duration::from_secs(20),
        environment: &environment,
    })
    .await
}

fn secret(id: &str) -> Values {
    let values = [
        ("AccessKeyID", format!("ID-{id}")),
        ("SecretAccessKey", format!("secret-key-{id}")),
    ];
    values.map(|(name, value)| (name.to_owned(), value)).into()
}

fn role(name: &str) -> Value {
    json!({"role": {"arn": format!("arn:aws:iam::2:role/{name}"), "durationSeconds": 900, "externalId": "e-1",
        "identity": {"uid": "u-1"}}})
}

async fn by_chain(
    server: &Server,
    chain: &[Value],
    secrets: &[Values],
    own: Option<&Values>,
) -> Result<Session, Failure> {
    let plan = json!({"chain": chain});
    at(server, &[], async |at: &At<'_>| {
        let plan = &plan;
        let tokens = &[];
        let plan = Plan {
            plan,
            secrets,
            tokens,
            own,
        };
        log_in_by_plan(at, &plan).await
    })
    .await
}

/// The id of the key with which each request was signed.
fn signed_by(server: &Server) -> Vec<String> {
    let seen = server.seen();
    let by = seen.iter().map(|request| {
        let id = request
            .split("Credential=")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        id.unwrap_or("nobody").to_owned()
    });
    by.collect()
}

#[tokio::test]
async fn each_link_of_a_chain_is_taken_by_the_keys_of_the_one_before_and_the_session_ends_with_the_first() {
    let server = sts(|role| if role == "outer" { NOON } else { ONE });
    let chain = [json!({"secret": {}}), role("outer"), role("inner")];
    let session = by_chain(&server, &chain, &[secret("1")], None)
        .await
        .expect("a session");
    assert_eq!(signed_by(&server), ["ID-1", "ID-outer", "ID-inner"]);
    assert_eq!(session.expires, unix_ms(NOON), "the earliest of the chain");
    assert_eq!(session.place, ["aws", "2", "eu-west-1"]);
    assert_eq!(session.principal, "arn:aws:sts::2:assumed-role/x");
    let first = &server.seen()[0];
    for said in [
        "RoleSessionName=polity-u-1",
        "DurationSeconds=900",
        "ExternalId=e-1",
    ] {
        assert!(first.contains(said), "{first}");
    }
}

#[tokio::test]
async fn a_chain_without_a_source_begins_with_the_credentials_of_the_connection() {
    let server = sts(|_| NOON);
    let session = by_chain(&server, &[role("inner")], &[], Some(&secret("own"))).await;
    assert_eq!(signed_by(&server), ["ID-own", "ID-inner"]);
    assert!(session.is_ok());
    let session = by_chain(&server, &[], &[], Some(&secret("own")))
        .await
        .expect("a session");
    assert_eq!(session.expires, None);
}

#[tokio::test]
async fn a_role_that_temporary_keys_assume_lives_an_hour_at_most() {
    let of_a_user = secret("own");
    let mut of_a_role = secret("own");
    of_a_role.insert("SessionToken".to_owned(), "a-session-token".to_owned());
    for (own, seconds) in [(of_a_user, 7_200), (of_a_role, 3_600)] {
        let server = sts(|_| ONE);
        let mut link = role("inner");
        link["role"]["durationSeconds"] = json!(7_200);
        let session = by_chain(&server, &[link], &[], Some(&own)).await;
        session.expect("a session");
        let assumed = &server.seen()[0];
        assert!(
            assumed.contains(&format!("DurationSeconds={seconds}&")),
            "{assumed}"
        );
    }
}

#[tokio::test]
async fn a_chain_begins_with_the_token_of_a_service_account() {
    let server = sts(|_| NOON);
    let web = json!({"webIdentity": {"arn": "arn:aws:iam::2:role/web", "identity": {"uid": "u-1"}}});
    let plan = json!({"chain": [web, role("inner")]});
    let session = at(&server, &[], async |at: &At<'_>| {
        let tokens = &["a.b.c".to_owned()];
        let plan = Plan {
            plan: &plan,
            secrets: &[],
            tokens,
            own: None,
        };
        log_in_by_plan(at, &plan).await
    })
    .await
    .expect("a session");
    assert_eq!(signed_by(&server), ["nobody", "ID-web", "ID-inner"]);
    assert_eq!(session.expires, unix_ms(NOON));
    let first = &server.seen()[0];
    for said in ["WebIdentityToken=a.b.c", "RoleSessionName=polity-u-1"] {
        assert!(first.contains(said), "{first}");
    }
}

#[tokio::test]
async fn a_link_that_is_refused_is_a_denial_without_the_keys() {
    let server = sts(|_| NOON);
    let refused = by_chain(
        &server,
        &[json!({"secret": {}}), role("forbidden")],
        &[secret("1")],
        None,
    )
    .await;
    let failure = refused.expect_err("refused");
    assert_eq!(failure.code, Code::PermissionDenied);
    assert_eq!(
        failure.message,
        "STS answers AssumeRole with 403: AccessDenied not with ***, no"
    );
}

/// The table of STS in `host/drivers/ERRORS.md`.
#[tokio::test]
async fn an_error_of_sts_is_what_the_page_says() {
    let page = include_str!("../../../../../drivers/ERRORS.md");
    let section = page.split("\n## ").find(|section| section.starts_with("STS\n"));
    let lines = section.expect("a section").lines();
    let rows = lines.filter(|line| line.starts_with("| `") || line.starts_with("| (none)"));
    let mut count = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [code, status, becomes, "none", pause, _] = cells[..] else {
            panic!("{row}")
        };
        let status = status.parse().expect("a status");
        let body = match code.trim_matches('`') {
            "(none)" => "<html/>".to_owned(),
            code => format!("<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>"),
        };
        let server = Server::start(move |_| (status, body.clone()));
        let refused = by_chain(&server, &[role("inner")], &[], Some(&secret("own"))).await;
        let refused = refused.expect_err("it is refused");
        let paused = refused.retry_after.map(|ms| format!("{} s", ms / 1_000));
        assert_eq!(
            (json!(refused.code).as_str(), paused.unwrap_or_default()),
            (Some(becomes.trim_matches('`')), pause.to_owned()),
            "{row}"
        );
        count += 1;
    }
    assert!(count > 15, "{count}");
}

#[tokio::test]
async fn a_chain_that_cannot_be_is_refused_before_anybody_is_asked_for_it() {
    let server = sts(|_| NOON);
    for (chain, code) in [
        (vec![role("outer"), json!({"secret": {}})], Code::InvalidArgument),
        // The plan was resolved without a token.
        (vec![json!({"webIdentity": {}})], Code::InvalidArgument),
    ] {
        let refused = by_chain(&server, &chain, &[secret("1")], Some(&secret("own"))).await;
        assert_eq!(refused.expect_err("refused").code, code);
    }
    assert!(
        !server
            .seen()
            .iter()
            .any(|request| request.contains("GetCallerIdentity"))
    );
}

#[tokio::test]
async fn keys_are_shown_by_the_servers_clock_where_that_of_the_host_runs_wrong() {
    let server = Server::with_headers("date: Mon, 23 Nov 2026 12:00:00 GMT\r\n", |request| {
        if !request.contains("x-amz-date: 20261123T120000Z") {
            let error = "<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>expired</Message></Error></ErrorResponse>";
            return (403, error.to_owned());
        }
        let who = "<Arn>arn:aws:iam::2:user/x</Arn><Account>2</Account><UserId>u</UserId>";
        let answer = format!(
            "<GetCallerIdentityResponse><GetCallerIdentityResult>{who}</GetCallerIdentityResult></GetCallerIdentityResponse>"
        );
        (200, answer)
    });
    let session = by_chain(&server, &[], &[], Some(&secret("own"))).await;
    assert_eq!(session.expect("a session").place, ["aws", "2", "eu-west-1"]);
    assert_eq!(
        server.seen().len(),
        2,
        "the request is sent once more, and not more often"
    );
}

/// A login of the host itself. Its environment leads to this server; the connection names a stranger's, which must see nothing.
async fn own(server: &Server, variables: &[(&str, String)]) -> Result<Session, Failure> {
    let stranger = sts(|_| NOON);
    let address = ("AWS_ENDPOINT_URL_STS", format!("http://{}", server.address));
    let variables = [variables, &[address]].concat();
    let session = at(&stranger, &variables, async |at: &At<'_>| log_in(at, None).await).await;
    assert_eq!(stranger.seen(), [""; 0]);
    session
}

#[tokio::test]
async fn the_hosts_own_identity_goes_to_no_server_that_a_connection_names() {
    let server = sts(|_| NOON);
    let keys = [
        ("AWS_ACCESS_KEY_ID", "ID-env".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "key-of-the-environment".to_owned()),
        ("AWS_ENDPOINT_URL_EC2", "http://ec2.example".to_owned()),
    ];
    let session = own(&server, &keys).await.expect("a session");
    let (address, _) = session.own_way("ec2").expect("it is the host").expect("a way");
    assert_eq!(address.as_text(), "http://ec2.example");
    assert!(session.own_way("iam").expect("it is the host").is_err());

    // Without variables it goes to AWS, and a region must not lead elsewhere.
    let stranger = sts(|_| NOON);
    let route = |region: &'static str, more: &'static [(&'static str, &'static str)]| {
        let more: Vec<(&str, String)> = more
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        let stranger = &stranger;
        async move {
            at(stranger, &more, async |at: &At<'_>| {
                let route = own::Route::of(&At { region, ..*at })?;
                Ok(route.to("sts").expect("a way").address.as_text())
            })
            .await
        }
    };
    assert_eq!(
        route("eu-west-1", &[]).await.as_deref(),
        Ok("https://sts.eu-west-1.amazonaws.com")
    );
    for region in [
        "",
        "evil.example/",
        "evil.example#",
        "EU",
        "a.b",
        "evil.example:443/x",
    ] {
        let refused = route(region, &[]).await.expect_err(region);
        assert!(refused.message.contains("spec.region"), "{refused}");
    }
    let bad = route("eu-west-1", &[("HTTPS_PROXY", "https://proxy.example")]).await;
    assert!(bad.expect_err("no proxy").message.contains("HTTPS_PROXY"));
    assert!(
        route("eu-west-1", &[("HTTPS_PROXY", "http://proxy.example:3128")])
            .await
            .is_ok()
    );
    assert_eq!(stranger.seen(), [""; 0]);
}

#[tokio::test]
async fn a_role_that_the_hosts_own_identity_assumes_goes_nowhere_else_either() {
    let (server, stranger) = (sts(|_| NOON), sts(|_| NOON));
    let variables = [
        ("AWS_ACCESS_KEY_ID", "ID-env".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "key-of-the-environment".to_owned()),
        ("AWS_ENDPOINT_URL_STS", format!("http://{}", server.address)),
    ];
    let plan = json!({"chain": [role("inner")]});
    let session = at(&stranger, &variables, async |at: &At<'_>| {
        let plan = Plan {
            plan: &plan,
            secrets: &[],
            tokens: &[],
            own: None,
        };
        log_in_by_plan(at, &plan).await
    })
    .await
    .expect("a session");
    assert_eq!(signed_by(&server), ["ID-env", "ID-inner"]);
    assert!(session.own_way("ec2").is_some_and(|way| way.is_ok()));
    assert_eq!(stranger.seen(), [""; 0]);
}

#[tokio::test]
async fn a_principal_longer_than_an_arn_is_refused() {
    let long = "x".repeat(3_000);
    let server = Server::start(move |_| {
        let who = format!("<Arn>arn:aws:iam::2:user/{long}</Arn><Account>2</Account><UserId>u</UserId>");
        let answer = format!(
            "<GetCallerIdentityResponse><GetCallerIdentityResult>{who}</GetCallerIdentityResult></GetCallerIdentityResponse>"
        );
        (200, answer)
    });
    let refused = at(&server, &[], async |at: &At<'_>| {
        crate::login::log_in(
            polity_core::contract::driver::Login::AwsSigv4,
            at,
            Some(&secret("own")),
        )
        .await
    })
    .await
    .expect_err("it is too long");
    assert_eq!(refused.code, Code::Unavailable);
    assert!(
        refused.message.len() < 500 && refused.message.contains("2048 bytes"),
        "{refused}"
    );
}

#[tokio::test]
async fn the_hosts_own_credentials_are_its_variables_or_the_role_of_its_service_account() {
    let server = sts(|_| NOON);
    let variables = [
        ("AWS_ACCESS_KEY_ID", "ID-env".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "key-env".to_owned()),
    ];
    own(&server, &variables).await.expect("a session");
    assert_eq!(signed_by(&server), ["ID-env"]);

    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(&file, "a.b.c\n").expect("written");
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.path().display().to_string()),
        ("AWS_ROLE_ARN", "arn:aws:iam::2:role/pod".to_owned()),
    ];
    let session = own(&server, &variables).await.expect("a session");
    assert_eq!(session.expires, unix_ms(NOON));
    assert_eq!(signed_by(&server), ["ID-env", "nobody", "ID-pod"]);
    assert!(server.seen()[1].contains("WebIdentityToken=a.b.c"));
}

#[tokio::test]
async fn a_machine_is_asked_for_its_role_with_a_token_and_a_container_with_its_own() {
    let keys =
        r#"{"AccessKeyId":"ID-m","SecretAccessKey":"key-m","Token":"t","Expiration":"2026-11-23T12:00:00Z"}"#;
    let metadata = Server::start(move |request| {
        let line = request.lines().next().unwrap_or_default();
        let shown = request.contains("x-aws-ec2-metadata-token: secret-token")
            || request.contains("authorization: container");
        match line.split(' ').take(2).collect::<Vec<_>>().as_slice() {
            ["PUT", "/latest/api/token"] => (200, "secret-token".to_owned()),
            _ if !shown => (401, String::new()),
            ["GET", "/latest/meta-data/iam/security-credentials/"] => (200, "the-role\n".to_owned()),
            [
                "GET",
                "/latest/meta-data/iam/security-credentials/the-role" | "/v1/credentials",
            ] => (200, keys.to_owned()),
            _ => (404, String::new()),
        }
    });
    let server = sts(|_| NOON);
    let url = format!("http://{}", metadata.address);
    let machine = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.clone())];
    let session = own(&server, &machine).await.expect("a session");
    assert_eq!(session.expires, unix_ms(NOON));
    let container = [
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            format!("{url}/v1/credentials"),
        ),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "container".to_owned()),
    ];
    own(&server, &container).await.expect("a session");
    assert_eq!(signed_by(&server), ["ID-m", "ID-m"]);

    let far = [(
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "http://example.com/x".to_owned(),
    )];
    let refused = own(&server, &far).await.expect_err("refused");
    assert!(
        refused.message.contains("an address of this machine"),
        "{refused}"
    );
    let off = [("AWS_EC2_METADATA_DISABLED", "true".to_owned())];
    let none = own(&server, &off).await.expect_err("there are none");
    assert_eq!(none.code, Code::Unauthenticated);
    assert!(none.message.contains("AWS_ACCESS_KEY_ID"), "{none}");
}

#[tokio::test]
async fn only_a_404_means_that_a_machine_has_no_role() {
    for (status, body, code) in [
        (404, "", Code::Unauthenticated),
        (301, "", Code::Unavailable),
        (500, "", Code::Unavailable),
        (503, "", Code::Unavailable),
        (200, "\n", Code::Unavailable),
    ] {
        let metadata = Server::start(move |request| {
            if request.starts_with("PUT ") {
                (200, "secret-token".to_owned())
            } else {
                (status, body.to_owned())
            }
        });
        let server = sts(|_| NOON);
        let variables = [(
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            format!("http://{}", metadata.address),
        )];
        let refused = own(&server, &variables).await.expect_err("there are no keys");
        assert_eq!(refused.code, code, "{status}: {refused}");
        assert_eq!(
            refused.message.contains("has no role"),
            status == 404,
            "{refused}"
        );
    }
    let metadata = Server::start(|_| (503, String::new()));
    let variables = [(
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        format!("http://{}", metadata.address),
    )];
    let refused = own(&sts(|_| NOON), &variables)
        .await
        .expect_err("there is no token");
    assert_eq!(refused.code, Code::Unavailable, "{refused}");
}

fn request(query: &[(&str, &str)], body: &'static str) -> Outgoing {
    Outgoing {
        address: Address::read("https://example.amazonaws.com").expect("an address"),
        method: Method::GET,
        path: Vec::new(),
        query: query
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        headers: Vec::new(),
        body: Bytes::from_static(body.as_bytes()),
    }
}

/// The case `get-vanilla-query-order-key-case` of AWS's test suite for signatures of version 4.
#[test]
fn a_signature_is_that_of_the_suite_of_aws() {
    let credentials = Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", None);
    let mut request = request(&[("Param2", "value2"), ("Param1", "value1")], "");
    credentials.sign(&mut request, "service", "us-east-1", 1_440_938_160_000);
    let authorization = &request.headers.last().expect("a header").1;
    assert_eq!(
        authorization,
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=host;x-amz-date, \
         Signature=b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
    );
}

#[test]
fn a_service_has_an_address_in_a_region() {
    let text = |service, region| address(service, region).map(|address| address.as_text());
    assert_eq!(
        text("ec2", "eu-west-1").as_deref(),
        Some("https://ec2.eu-west-1.amazonaws.com")
    );
    assert_eq!(
        text("sts", "cn-north-1").as_deref(),
        Some("https://sts.cn-north-1.amazonaws.com.cn")
    );
    assert_eq!(text("ec2", ""), None);
}
