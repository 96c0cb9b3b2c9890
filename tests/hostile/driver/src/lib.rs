//! A driver that does what its configuration says, whatever the operation is: one outcome for each number of exchanges. What
//! comes after the last one is the last one again.

use std::collections::BTreeMap;

use polity_driver_sdk::{
    Call, Code, Effect, Endpoint, Finding, HttpRequest, Implements, Login, Manifest, Outcome, Part, Piece,
    Refusals, Sealed, StatusClass, Transform, failure,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The configuration of a connection.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    /// What is done when so many exchanges are there.
    pub steps: Vec<Does>,
}

/// An outcome.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Does {
    /// Sends these requests.
    Send(Vec<Wish>),
    /// Answers this.
    Answer(Value),
    /// Answers this text, which need not be JSON.
    Say(String),
    /// Answers what the last exchange brought.
    Echo,
    /// Fails with what the last exchange brought.
    Fail,
    /// Says that nothing is there.
    NotFound,
    /// Says that the login is not known.
    Unauthenticated,
    /// Resolves that nothing is there.
    Nothing,
    /// Sends a new request, for ever.
    SendOn,
    /// Panics.
    Panic,
    /// Computes for ever.
    Spin,
    /// Takes memory for ever.
    Fill,
    /// One of these, by the operation.
    Of(
        // A schema inlines what it is made of, and these are outcomes again.
        #[schemars(with = "BTreeMap<String, Value>")] BTreeMap<String, Does>,
    ),
}

/// A request. What is missing is harmless.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Wish {
    /// `read`, `change` or `create`.
    pub effect: String,
    /// The endpoint.
    pub endpoint: Option<String>,
    /// The address of a dynamic endpoint.
    pub address: Option<String>,
    /// The method.
    pub method: Option<String>,
    /// The segments of the path.
    pub path: Vec<String>,
    /// A header.
    pub header: Option<[String; 2]>,
    /// The pairs of the query.
    pub query: Vec<[String; 2]>,
    /// The pieces of the body before these bytes.
    pub text: Vec<String>,
    /// The body: so many bytes.
    pub bytes: usize,
    /// The sealed argument that the body holds.
    pub seals: Option<String>,
    /// The field of the body in which it is; `userData` if nothing is said.
    pub field: Option<String>,
    /// How it is transformed before it is escaped: `base64`, `json`, `xml` or `form`, each so many times.
    pub then: Vec<(String, usize)>,
    /// How many parts of the sealed text are this argument, beside the first.
    pub copies: usize,
    /// How many texts of the body hold it, beside the first.
    pub pieces: usize,
    /// How many paths of the response are kept, beside everything, and how long each is.
    pub paths: [usize; 2],
}

/// The bytes that a test may write.
const ROOM: usize = 16 << 10;
/// The mark that a test replaces.
const MARK: &[u8] = b"these-are-other-fields-of-the-manifest";
/// Other fields of the manifest, with blanks after them.
static FIELDS: [u8; ROOM] = {
    let mut room = [b' '; ROOM];
    let mut at = 0;
    while at < MARK.len() {
        room[at] = MARK[at];
        at += 1;
    }
    room
};

/// What it says of itself, as JSON, with the fields that a test wrote. With `xBytes` a schema's description has so many bytes.
pub fn description() -> String {
    let mut whole: Value = serde_json::from_str(&manifest().to_json()).unwrap_or_default();
    let written: BTreeMap<String, Value> =
        serde_json::from_slice(std::hint::black_box(&FIELDS)).unwrap_or_default();
    for (field, value) in written {
        whole[field] = value;
    }
    let schema = &mut whole["configSchema"];
    if let Some(bytes) = schema["xBytes"].as_u64() {
        schema["description"] = "x".repeat(usize::try_from(bytes).unwrap_or(0)).into();
    }
    whole.to_string()
}

/// What it says of itself.
pub fn manifest() -> Manifest {
    let operations = ["machine.create", "machine.status", "machine.delete"];
    let lingers = std::time::Duration::from_secs(1);
    let machines = Implements::new("machine@1", &operations).lingers("machine.create", lingers);
    let appliance = Endpoint {
        dynamic: Some(9),
        ..Endpoint::default()
    };
    let api = Endpoint {
        refusals: Some(Refusals::at("error.code").codes(StatusClass::ServerError, ["full"])),
        ..Endpoint::default()
    };
    Manifest::new("hostile", env!("CARGO_PKG_VERSION"), Login::Bearer)
        .config::<Config>()
        .endpoint("api", api)
        .endpoint("appliance", appliance)
        .implements(machines)
}

/// One step.
pub fn step(call: &Call) -> Outcome {
    let config: Config = serde_json::from_str(&call.config).unwrap_or_default();
    let count = call.exchanges.len();
    let does = config.steps.get(count).or(config.steps.last());
    does.map_or_else(|| panic!("without a step"), |does| outcome(does, call))
}

fn outcome(does: &Does, call: &Call) -> Outcome {
    let count = call.exchanges.len();
    match does {
        Does::Of(operations) => outcome(&operations[&call.operation], call),
        Does::Send(wishes) => Outcome::Send(wishes.iter().map(request).collect()),
        Does::Answer(answer) => Outcome::Answered(Ok(answer.to_string())),
        Does::Say(text) => Outcome::Answered(Ok(text.clone())),
        Does::Echo => Outcome::Answered(Ok(json!({"providerID": seen(call)}).to_string())),
        Does::Fail => Outcome::Answered(Err(failure(Code::Aborted, seen(call)))),
        Does::NotFound => Outcome::Answered(Err(failure(Code::NotFound, "none"))),
        Does::Unauthenticated => Outcome::Answered(Err(failure(Code::Unauthenticated, "who?"))),
        Does::Nothing => Outcome::Resolved(Finding::None),
        Does::SendOn => Outcome::Send(vec![HttpRequest {
            path: vec![count.to_string()],
            ..request(&Wish::default())
        }]),
        Does::Panic => panic!("as it was told"),
        Does::Spin => loop {
            std::hint::black_box(0);
        },
        Does::Fill => {
            let mut all = Vec::new();
            loop {
                all.push(std::hint::black_box(vec![1_u8; 1 << 20]));
            }
        }
    }
}

/// All that the last exchange brought.
fn seen(call: &Call) -> String {
    call.exchanges
        .last()
        .map_or_else(String::new, |exchange| format!("{:?}", exchange.response))
}

fn request(wish: &Wish) -> HttpRequest {
    let (effect, method) = match wish.effect.as_str() {
        "change" => (Effect::Change, "POST"),
        "create" => (Effect::Create, "POST"),
        _ => (Effect::Read, "GET"),
    };
    let mut headers: Vec<(String, String)> = wish.header.clone().map(Into::into).into_iter().collect();
    let texts = wish.text.iter().cloned().map(Piece::Text);
    let mut body: Vec<Piece> = texts.chain([Piece::Text("x".repeat(wish.bytes))]).collect();
    if let Some(path) = &wish.seals {
        body = sealing(wish, path);
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    let [paths, length] = wish.paths;
    let path = |n: usize| format!("{n:0length$}");
    HttpRequest {
        effect,
        endpoint: wish.endpoint.clone().unwrap_or_else(|| "api".to_owned()),
        address: wish.address.clone(),
        method: wish.method.clone().unwrap_or_else(|| method.to_owned()),
        path: wish.path.clone(),
        query: wish.query.iter().cloned().map(Into::into).collect(),
        headers,
        body,
        keep: (0..paths).map(path).chain(["*".to_owned()]).collect(),
    }
}

/// A document whose field is the sealed argument, as often as it is wished for.
fn sealing(wish: &Wish, path: &str) -> Vec<Piece> {
    let transform = |name: &str| match name {
        "base64" => Transform::Base64,
        "xml" => Transform::Xml,
        "form" => Transform::Form,
        _ => Transform::Json,
    };
    let then = wish.then.iter();
    let then = then.flat_map(|(name, times)| vec![transform(name); *times]);
    let sealed = Sealed {
        parts: vec![Part::Argument(path.to_owned()); wish.copies + 1],
        then: then.chain([Transform::Json]).collect(),
    };
    let field = wish.field.as_deref().unwrap_or("userData");
    let mut body = vec![Piece::Text(format!("[{{\"{field}\":\""))];
    for nth in 0..=wish.pieces {
        if nth > 0 {
            body.push(Piece::Text(format!("\"}},{{\"{field}\":\"")));
        }
        body.push(Piece::Sealed(sealed.clone()));
    }
    body.push(Piece::Text("\"}]".to_owned()));
    body
}

/// Exports it. Natively there is nothing to export.
#[cfg(target_arch = "wasm32")]
mod component {
    use polity_driver_sdk::bindings;

    struct Component;

    impl bindings::exports::polity::driver::driver_info::Guest for Component {
        fn describe() -> String {
            super::description()
        }
    }

    impl bindings::exports::polity::driver::operations::Guest for Component {
        fn step(call: super::Call) -> super::Outcome {
            super::step(&call)
        }
    }

    bindings::export!(Component with_types_in bindings);
}
