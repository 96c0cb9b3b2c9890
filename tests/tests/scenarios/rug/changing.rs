//! Scenarios (g) 8, 11 and 12: routers that are changed while they run.

use polity_core::record::PassRecord;
use polity_core::time::millis;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::story::{Story, edges};
use polity_tests::specified::rug;
use serde_json::{Value, json};

use super::network::*;
use crate::scenarios::scenarios;

scenarios! {
    scenario_08_a_rebuild_with_another_image,
    scenario_11_a_network_that_was_added_is_plugged_in_while_the_vm_runs,
    scenario_12_a_vm_that_cannot_be_plugged_is_made_anew,
    scenario_12_a_vm_that_does_not_show_its_networks_is_made_anew,
    scenario_12_a_vm_whose_attach_is_never_found_is_made_anew,
    a_router_is_left_alone_while_somebody_debugs,
}

/// An update that finds other networks, and plugs them while the VM runs.
const REPLUGGED: [&str; 7] = [
    "02 at once",
    "09 at once",
    "22 at once",
    "X14 after 1 s",
    "24 at once",
    "after 1 s",
    "21 settled",
];

async fn scenario_08_a_rebuild_with_another_image(on: &dyn Backend) {
    let vanishes = json!({"vm": "r-1", "at": "100s", "does": "vanish"});
    let story = active(on, json!({"events": [vanishes]})).await;
    let done = story.passes().len();
    rebuild_from(&story, "image-2", "1").await;
    let router = active_again(&story, done, "29").await;
    let rebuilt = ["05 at once", "28 after 1 s", "29 at once"];
    assert_eq!(told(&story, done), [&rebuilt[..], &COMES_UP].concat());
    assert_eq!(vm(&story, "r-1").image, "image-2");
    assert_eq!(router["status"]["rebuildImageUUID"], "image-2");
    assert_eq!(router["spec"]["imageUUID"], "image-1");

    // An image that was asked for is used until the next rebuild.
    let done = story.passes().len();
    active_again(&story, done, "08").await;
    assert_eq!((vm(&story, "r-1").image.as_str(), made(&story)), ("image-2", 3));
    let done = story.passes().len();
    let forgets = json!({"rug.polity.dev/rebuild-image": null, "request.polity.dev/rebuild": "2"});
    story.edit(json!({"metadata": {"annotations": forgets}})).await;
    active_again(&story, done, "29").await;
    assert_eq!(vm(&story, "r-1").image, "image-1");
    assert_eq!(story.site.vms().len(), 1);
}

async fn scenario_11_a_network_that_was_added_is_plugged_in_while_the_vm_runs(on: &dyn Backend) {
    let story = active(on, json!({})).await;
    let (done, acted) = (story.passes().len(), story.acts().len());
    ports(&story, &[1, 2]).await;
    active_again(&story, done, "24").await;
    assert_eq!(told(&story, done), REPLUGGED);
    let both = vm(&story, "r-1");
    assert_eq!(both.macs, [mac(1), mac(2)]);
    assert_eq!(both.config, Some(json!({"ports": [port(1), port(2)]})));

    let done = story.passes().len();
    ports(&story, &[2]).await;
    let router = active_again(&story, done, "24").await;
    assert_eq!(told(&story, done), REPLUGGED);
    assert_eq!(vm(&story, "r-1").macs, [mac(2)]);
    assert_eq!(router["status"]["ports"], json!([mac(2)]));
    let owned: Vec<String> = taken(&story).into_iter().map(|port| port.mac).collect();
    assert_eq!(owned, [mac(2)], "what is plugged out is given back");
    assert_eq!(
        story.acts()[acted..],
        ["port.attach", "config.push", "port.detach", "config.push"]
    );
    assert_eq!(made(&story), 1);
}

/// The network cannot be plugged in; another VM has it from the start.
async fn is_made_anew(story: &Story) -> Value {
    let done = story.passes().len();
    ports(story, &[1, 2]).await;
    let unplugged = story.until_is("status.vm", "R").await;
    active_again(story, done, "30").await;
    let fails = [
        "02 at once",
        "09 at once",
        "22 at once",
        "X14 after 1 s",
        "25 at once",
        "X10 after 1 s",
        "30 at once",
    ];
    assert_eq!(told(story, done), [&fails[..], &COMES_UP].concat());
    assert_eq!(vm(story, "r-1").macs, [mac(1), mac(2)]);
    assert_eq!((made(story), story.site.vms().len()), (2, 1));
    unplugged
}

async fn scenario_12_a_vm_that_cannot_be_plugged_is_made_anew(on: &dyn Backend) {
    let fails = json!({"operation": "port.attach", "count": 1, "then": {"fail": {"code": "internal"}}});
    let story = active(on, json!({"faults": [fails]})).await;
    let router = is_made_anew(&story).await;
    assert_eq!(reason(&router), "ReplugFailed");
    assert_eq!(acts(&story, "port.attach"), 1);
}

async fn scenario_12_a_vm_that_does_not_show_its_networks_is_made_anew(on: &dyn Backend) {
    let never = json!({"operation": "port.attach", "then": "neverPlugs"});
    let story = active(on, json!({"faults": [never]})).await;
    let router = is_made_anew(&story).await;
    let late = json!([
        "False",
        "ReplugFailed",
        "the VM does not show its networks after 10s"
    ]);
    assert_eq!(said(&router, "Ready"), late);
    // The time begins with the pass after the answer.
    let waited = waited(&story);
    assert!((rug::HOTPLUG..rug::HOTPLUG + 2_500).contains(&waited), "{waited}");
}

/// The milliseconds from the first attach until the VM was given up.
fn waited(story: &Story) -> u64 {
    let passes = story.passes();
    let began = |is_it: &dyn Fn(&PassRecord) -> bool| {
        let mut passes = passes.iter();
        passes.find(|pass| is_it(pass)).expect("it is there").started.boot
    };
    let attaches = |pass: &PassRecord| polity_tests::passes::calls(pass).contains(&"port.attach".to_owned());
    millis(began(&|pass| edges(pass) == "25") - began(&attaches))
}

/// Of each attach nobody knows whether it arrived.
async fn scenario_12_a_vm_whose_attach_is_never_found_is_made_anew(on: &dyn Backend) {
    let lost = json!({"operation": "port.attach", "then": "loseRequest"});
    let story = active(on, json!({"faults": [lost]})).await;
    is_made_anew(&story).await;
    // A pass that is cut takes five seconds, and the next one comes a second later.
    let (waited, least) = (waited(&story), rug::ATTACH + rug::HOTPLUG - 1_500);
    assert!((least..least + 8_000).contains(&waited), "{waited}");
}

async fn a_router_is_left_alone_while_somebody_debugs(on: &dyn Backend) {
    let vanishes = json!({"vm": "r-1", "at": "100s", "does": "vanish"});
    let story = active(on, json!({"events": [vanishes]})).await;
    let done = story.passes().len();
    story
        .edit(json!({"spec": {"debug": true, "debugReason": "tcpdump"}}))
        .await;
    request(&story, "rebuild", "1").await;
    until_second(&story, 600).await;
    assert_eq!(calls(&story.passes()[done..]), Vec::<String>::new());
    let router = story.object().await;
    assert_eq!(said(&router, "Debugging"), json!(["True", "Debug", "tcpdump"]));

    // The request is forgotten. That the VM was killed is found out.
    let done = story.passes().len();
    story.edit(json!({"spec": {"debug": false}})).await;
    let router = active_again(&story, done, "21").await;
    let finds = ["02 at once", "08 at once"];
    assert_eq!(told(&story, done), [&finds[..], &COMES_UP].concat());
    assert_eq!(said(&router, "Debugging"), Value::Null);
}
