//! Recorded answers of nova 34 about a server that was booted with the marks of the driver: `cell-up.json`, and after the
//! database of its cell was gone, `cell-down.json`.

use polity_driver_openstack::OpenStack;
use polity_driver_sdk::test::{Play, Reply};
use polity_driver_sdk::{Code, Finding, HttpRequest};
use serde_json::{Value, json};

const SERVER: &str = "6b1876d0-d173-4ccf-b665-88a3b55a27e8";
/// When the server was created.
const CREATED: u64 = 1_795_444_811_000;

/// An object in front of the recorded answers.
fn play(recorded: &str) -> Play<impl FnMut(&HttpRequest) -> Reply + use<>> {
    let recorded: Vec<Value> = serde_json::from_str(recorded).expect("JSON");
    let mut play = Play::new(move |request: &HttpRequest| {
        let is_it =
            |known: &&Value| known["path"] == json!(request.path) && known["query"] == json!(request.query);
        let known = recorded.iter().find(is_it);
        let known = known.unwrap_or_else(|| panic!("{:?} was not recorded", request.path));
        let status = known["status"].as_u64().and_then(|status| status.try_into().ok());
        let reply = Reply::json(status.expect("a status"), known["body"].clone());
        let headers = known["headers"].as_object().into_iter().flatten();
        headers.fold(reply, |reply, (name, value)| {
            reply.header(name, value.as_str().expect("text"))
        })
    });
    play.config = json!({"managementNetwork": "m"});
    play.now = CREATED + 30_000;
    play
}

fn cell_down() -> Play<impl FnMut(&HttpRequest) -> Reply> {
    play(include_str!("../recorded/cell-down.json"))
}

#[test]
fn a_boot_that_arrived_is_found_in_the_list_that_nova_gives() {
    let mut play = play(include_str!("../recorded/cell-up.json"));
    let entry = play.entry("edge");
    let found = play.resolve::<OpenStack>("router.boot", entry);
    assert_eq!(found, Finding::Found(json!({"id": SERVER}).to_string()));
}

#[test]
fn a_list_with_a_filter_lies_when_a_cell_is_down_and_the_boot_stays_in_doubt() {
    let mut play = cell_down();
    let entry = play.entry("edge");
    let Finding::CannotTell(why) = play.resolve::<OpenStack>("router.boot", entry) else {
        panic!("nobody can tell");
    };
    assert_eq!(why.code, Code::Unavailable);
    assert!(why.message.contains(SERVER), "{}", why.message);
    let sent: Vec<&[(String, String)]> = play.sent.iter().map(|request| &request.query[..]).collect();
    assert_eq!(sent.len(), 2);
    assert!(sent[1].is_empty(), "with any filter nova leaves such servers out");
}

#[test]
fn a_server_in_a_cell_that_is_down_is_not_gone() {
    for named in [json!({"name": "edge"}), json!({"name": "edge", "id": SERVER})] {
        let seen = cell_down().perform::<OpenStack>("router.get", named.clone());
        assert_eq!(
            seen.map_err(|failure| failure.code),
            Err(Code::Unavailable),
            "{named}"
        );
    }
}
