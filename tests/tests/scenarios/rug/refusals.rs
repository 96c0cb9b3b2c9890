//! Bad input leads to a condition with a clear reason and another try as the specification says. Nothing is deleted
//! because of it.

use std::time::Duration;

use polity_tests::host_fixture::reference;
use polity_tests::host_harness::backend::Backend;
use polity_tests::host_harness::rug;
use polity_tests::host_harness::story::Story;
use serde_json::{Value, json};

use super::network::*;
use crate::scenarios::scenarios;

scenarios! {
    without_its_image_nothing_is_booted_until_there_is_another_one,
    the_image_of_another_tenant_is_not_booted_either,
    a_rebuild_from_an_image_that_is_not_there_waits_for_one_that_is,
    a_port_of_another_router_is_left_alone_until_it_is_free,
    a_port_of_another_tenant_and_one_that_does_not_exist_are_left_out,
    a_port_that_another_router_gets_first_is_no_reason_to_take_the_vm_down,
    a_mac_address_that_is_none_is_refused_where_it_is_written,
    erratum_12_a_letter_that_is_none_is_refused_where_it_is_written,
}

const MINUTE: Duration = Duration::from_secs(60);

/// Nothing was taken down or given back.
fn nothing_is_deleted(story: &Story) {
    let gone = ["router.delete", "router.delete-ports", "port.detach"];
    assert!(
        story.acts().iter().all(|act| !gone.contains(&act.as_str())),
        "{:?}",
        story.acts()
    );
}

/// Two images, the second of which only another tenant may boot.
fn images() -> Value {
    json!({"images": [{"id": "image-1"}, {"id": "image-2", "tenants": ["other"]}]})
}

/// The router with this image is given up after five tries, and boots once it has one that is there.
async fn tried_five_times(story: &Story, image: &str, why: Value) {
    let mut router = router();
    router["spec"]["imageUUID"] = json!(image);
    story.create(&router).await;
    let router = story.until_is("status.vm", "E").await;
    story.sleep(10 * MINUTE).await;
    assert_eq!(
        told(story, 0),
        ["01 at once", "03 at once", "16 retry", "15 settled", "settled"]
    );
    assert_eq!((times(story, "16"), said(&router, "Ready")), (5, why));
    assert_eq!(story.acts(), Vec::<String>::new());

    let done = story.passes().len();
    story.edit(json!({"spec": {"imageUUID": "image-1"}})).await;
    active_again(story, done, "21").await;
    let goes_on = ["07 at once", "27 at once", "03 at once"];
    assert_eq!(told(story, done), [&goes_on[..], &COMES_UP].concat());
    nothing_is_deleted(story);
}

async fn without_its_image_nothing_is_booted_until_there_is_another_one(on: &dyn Backend) {
    let story = begin(on, images(), json!({})).await;
    let why = json!([
        "False",
        "ImageNotFound",
        "the image \"image-9\": no image \"image-9\""
    ]);
    tried_five_times(&story, "image-9", why).await;
}

async fn the_image_of_another_tenant_is_not_booted_either(on: &dyn Backend) {
    let story = begin(on, images(), json!({})).await;
    let denied = "the image \"image-2\": tenant \"default\" may not boot image \"image-2\"";
    tried_five_times(&story, "image-2", json!(["False", "ImageDenied", denied])).await;
}

async fn a_rebuild_from_an_image_that_is_not_there_waits_for_one_that_is(on: &dyn Backend) {
    let story = active(on, images()).await;
    let done = story.passes().len();
    for (image, reason) in [("image-9", "ImageNotFound"), ("image-2", "ImageDenied")] {
        rebuild_from(&story, image, "1").await;
        let refused = |router: &Value| said(router, "RebuildTaken")[1] == reason;
        let router = story.until("it is refused", refused).await;
        assert_eq!(said(&router, "RebuildTaken")[0], "False");
        story.sleep(3 * MINUTE).await;
        assert_eq!(
            said(&story.object().await, "Ready"),
            json!(["True", "Configured", ""])
        );
    }
    // Each pass looks again.
    let passes = story.passes().split_off(done);
    let looked = calls(&passes).iter().filter(|call| *call == "image.get").count();
    assert_eq!(looked, passes.len());
    assert!(
        passes
            .iter()
            .all(|pass| ["settled", FINE[0], FINE[1]].contains(&tell(pass).as_str()))
    );
    nothing_is_deleted(&story);

    let done = story.passes().len();
    rebuild_from(&story, "image-1", "1").await;
    let router = active_again(&story, done, "29").await;
    assert_eq!(said(&router, "RebuildTaken"), Value::Null);
    assert_eq!(made(&story), 2);
}

async fn a_port_of_another_router_is_left_alone_until_it_is_free(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    story.create(&rug::router("r-2", &[2])).await;
    story.until_vms(|vms| vms.len() == 1).await;
    story.create(&rug::router("r-1", &[1, 2])).await;
    let router = until_active(&story).await;
    let others = json!([
        "False",
        "PortOfAnotherRouter",
        format!("not plugged in: {}", mac(2))
    ]);
    assert_eq!(said(&router, "PortsPlugged"), others);
    assert_eq!(said(&router, "Ready"), json!(["True", "Configured", ""]));
    assert_eq!(router["status"]["withheld"], json!([mac(2)]));
    assert_eq!(
        (vm(&story, "r-1").macs, vm(&story, "r-2").macs),
        (vec![mac(1)], vec![mac(2)])
    );
    let done = story.passes().len();
    story.sleep(3 * MINUTE).await;
    assert_eq!(told(&story, done), FINE, "each poll looks whether it is free");
    assert!(calls(&story.passes()[done..]).contains(&"port.get".to_owned()));
    nothing_is_deleted(&story);

    let second = reference(rug::RUG, "Router", Some("default"), "r-2");
    story.site.delete(&second, None).await.expect("it is there");
    let done = story.passes().len();
    let router = active_again(&story, done, "24").await;
    let plugged = [
        "02 at once",
        "09 at once",
        "22 at once",
        "X14 after 1 s",
        "24 at once",
        "after 1 s",
        "21 settled",
    ];
    assert!(
        told(&story, done).ends_with(&plugged.map(str::to_owned)),
        "{:?}",
        told(&story, done)
    );
    assert_eq!(said(&router, "PortsPlugged"), Value::Null);
    assert_eq!(vm(&story, "r-1").macs, [mac(1), mac(2)]);
    assert_eq!(acts(&story, "router.boot"), 1);
}

async fn a_port_of_another_tenant_and_one_that_does_not_exist_are_left_out(on: &dyn Backend) {
    let listed = |number: u32, of: Value| {
        let mut listed = port(number);
        polity_tests::simulation::store::merge(&mut listed, &of);
        listed
    };
    let there = json!([listed(1, json!({})), listed(2, json!({"tenant": "other"}))]);
    let story = active(on, json!({"routers": {"ports": there}})).await;
    for (number, reason) in [(2, "PortOfAnotherRouter"), (3, "PortNotFound")] {
        let done = story.passes().len();
        ports(&story, &[1, number]).await;
        let router = active_again(&story, done, "21").await;
        assert_eq!(
            said(&router, "PortsPlugged"),
            json!(["False", reason, format!("not plugged in: {}", mac(number))])
        );
        assert_eq!(
            told(&story, done),
            ["02 at once", "09 at once", "after 1 s", "21 settled"]
        );
        assert_eq!(vm(&story, "r-1").macs, [mac(1)]);
    }
    nothing_is_deleted(&story);
    assert_eq!(made(&story), 1);
}

async fn a_port_that_another_router_gets_first_is_no_reason_to_take_the_vm_down(on: &dyn Backend) {
    // Nobody has it when it is looked at, and somebody has it when it is plugged in.
    let denied =
        json!({"operation": "port.attach", "count": 1, "then": {"fail": {"code": "permission-denied"}}});
    let story = active(on, json!({"faults": [denied]})).await;
    let done = story.passes().len();
    ports(&story, &[1, 2]).await;
    let router = active_again(&story, done, "21").await;
    let withheld = [
        "02 at once",
        "09 at once",
        "22 at once",
        "X14 after 1 s",
        "24 at once",
    ];
    assert_eq!(told(&story, done)[..5], withheld);
    assert_eq!(reason(&router), "Configured");
    nothing_is_deleted(&story);
    assert_eq!(made(&story), 1);
}

async fn a_mac_address_that_is_none_is_refused_where_it_is_written(on: &dyn Backend) {
    let story = begin(on, json!({}), json!({})).await;
    for odd in ["none", "FA:16:3E:00:00:01", "fa:16:3e:00:00:01:02"] {
        let mut router = router();
        router["spec"]["ports"][0]["mac"] = json!(odd);
        let refused = story.site.cluster.apply(&router).await;
        let message = refused.expect_err("it is refused").message;
        assert!(message.contains("spec.ports[0].mac"), "{message}");
    }
    let mut twice = router();
    twice["spec"]["ports"] = json!([port(1), port(1)]);
    let refused = story.site.cluster.apply(&twice).await;
    assert!(refused.is_err(), "each port once");
    story.sleep(MINUTE).await;
    assert!(story.passes().is_empty());
}

/// The original learned further letters later. They are none here.
async fn erratum_12_a_letter_that_is_none_is_refused_where_it_is_written(on: &dyn Backend) {
    let story = active(on, json!({})).await;
    let router = reference(rug::RUG, "Router", Some("default"), "r-1");
    for (field, letter) in [("vm", "DEGRADED"), ("action", "CLUSTER_REBUILD"), ("vm", "X")] {
        let status = json!({"status": {field: letter}});
        let refused = story.site.patch(&router, Some("status"), status).await;
        let message = refused.expect_err("it is refused").message;
        assert!(message.contains(&format!("status.{field}")), "{message}");
    }
    assert_eq!(
        said(&story.object().await, "Ready"),
        json!(["True", "Configured", ""])
    );
}
