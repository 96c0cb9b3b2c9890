//! Tests of reading VMs.

use polity_driver_sdk::prelude::*;

use crate::bench::{Bench, own};
use crate::vcenter::{OWN_VM, options, own_vm};

#[test]
fn a_vm_is_found_by_its_uuid_and_described_as_by_its_id() {
    let mut bench = Bench::new();
    let described = json!({
        "id": OWN_VM, "name": "m-1", "instanceUuid": "owner-1", "biosUuid": "bios-of-vm-42",
    });
    let found = bench.call("vm.find", json!({"instanceUuid": "owner-1"})).unwrap();
    assert_eq!(found, described);
    assert_eq!(bench.call("vm.get", own()).unwrap(), described);
    assert_eq!(
        bench.code("vm.find", json!({"instanceUuid": "other"})),
        Code::NotFound
    );
}

#[test]
fn among_vms_with_one_uuid_the_owners_is_found() {
    let mut bench = Bench::new();
    let mut copy = own_vm();
    copy.id = "vm-41".to_owned();
    copy.options.clear();
    bench.vcenter().vms.insert(0, copy);
    let found = bench.call("vm.find", json!({"instanceUuid": "owner-1"})).unwrap();
    assert_eq!(found["id"], OWN_VM);
}

#[test]
fn a_vm_that_cannot_be_read_is_not_absent() {
    for make in [
        |bench: &Bench| bench.vcenter().vm(OWN_VM).is_configured = false,
        |bench: &Bench| {
            let withheld = ("config.extraConfig".to_owned(), "HostNotConnected".to_owned());
            bench.vcenter().vm(OWN_VM).withheld = [withheld].into();
        },
    ] {
        let mut bench = Bench::new();
        make(&bench);
        assert_eq!(bench.code("vm.get", own()), Code::Unavailable);
    }
    let mut bench = Bench::new();
    let withheld = ("config.extraConfig".to_owned(), "NoPermission".to_owned());
    bench.vcenter().vm(OWN_VM).withheld = [withheld].into();
    let find = json!({"instanceUuid": "owner-1"});
    assert_eq!(
        bench.code("vm.find", find),
        Code::PermissionDenied,
        "and not absent"
    );
}

#[test]
fn a_property_that_is_withheld_has_the_code_of_its_fault() {
    for (fault, code) in [
        ("NoPermission", Code::PermissionDenied),
        ("ManagedObjectNotFound", Code::NotFound),
        ("SystemError", Code::Internal),
        ("SomethingNew", Code::Internal),
    ] {
        let mut bench = Bench::new();
        bench.vcenter().vm(OWN_VM).withheld = [("runtime.powerState".to_owned(), fault.to_owned())].into();
        assert_eq!(bench.code("vm.power", own()), code, "{fault}");
    }
}

#[test]
fn a_description_lacks_nothing() {
    let mut bench = Bench::new();
    bench.vcenter().vm(OWN_VM).instance_uuid.clear();
    assert_eq!(bench.code("vm.get", own()), Code::Unavailable);
}

#[test]
fn power_is_on_off_or_suspended() {
    for (state, shown) in [
        ("poweredOn", "on"),
        ("poweredOff", "off"),
        ("suspended", "suspended"),
    ] {
        let mut bench = Bench::new();
        bench.vcenter().vm(OWN_VM).power = state.to_owned();
        assert_eq!(bench.call("vm.power", own()).unwrap(), json!({"state": shown}));
    }
    let mut bench = Bench::new();
    bench.vcenter().vm(OWN_VM).power = "standby".to_owned();
    assert_eq!(bench.code("vm.power", own()), Code::Internal);
}

#[test]
fn metadata_is_decoded_and_null_if_there_never_was_any() {
    let mut bench = Bench::new();
    assert_eq!(
        bench.call("vm.metadata", own()).unwrap(),
        json!({"metadata": null})
    );
    for (text, encoding, shown) in [
        ("eyJhIjoxfQ==", "base64", r#"{"a":1}"#),
        ("plain", "", "plain"),
        ("H4sI", "gzip+base64", "H4sI"),
        ("no base64!", "base64", "no base64!"),
    ] {
        let marks = [("polity.owner", "owner-1"), ("polity.tenant", "tenant-1")];
        let given = [
            ("guestinfo.metadata", text),
            ("guestinfo.metadata.encoding", encoding),
        ];
        bench.vcenter().vm(OWN_VM).options = options(&[marks, given].concat());
        assert_eq!(
            bench.call("vm.metadata", own()).unwrap(),
            json!({"metadata": shown})
        );
    }
}

#[test]
fn interfaces_have_the_names_of_their_networks_and_the_addresses_of_the_guest() {
    let mut bench = Bench::new();
    let nic = |mac: &str, ips: &[&str]| {
        let ips: String = ips
            .iter()
            .map(|ip| format!("<ipAddress>{ip}</ipAddress>"))
            .collect();
        format!(
            "<GuestNicInfo><network>of the guest</network>{ips}<macAddress>{mac}</macAddress></GuestNicInfo>"
        )
    };
    {
        use crate::vcenter::world::{card, distributed};
        let mut vcenter = bench.vcenter();
        let vm = vcenter.vm(OWN_VM);
        let standard = r#"<backing xsi:type="VirtualEthernetCardNetworkBackingInfo"><deviceName>VM Network</deviceName></backing>"#;
        vm.devices.extend([
            card(4001, "00:50:56:00:00:02", &distributed("dvportgroup-17"), true),
            card(4002, "00:50:56:00:00:03", standard, false),
            card(4003, "00:50:56:00:00:04", &distributed("dvportgroup-99"), true),
            card(4004, "00:50:56:00:00:05", &distributed("dvportgroup-98"), true),
        ]);
        vm.networks = ["dvportgroup-13", "dvportgroup-17", "network-12"]
            .map(str::to_owned)
            .into();
        vm.guest = vec![
            nic("00:50:56:00:00:04", &[]),
            nic(
                "00:50:56:00:00:01",
                &["10.0.0.1", "FE80::1", "<evil/>", "10.0.0.1/24"],
            ),
            nic("00:50:56:00:00:03", &["10.0.0.3"]),
            nic("00:50:56:00:00:02", &["10.0.0.2"]),
        ];
    }
    let answer = bench.call("vm.nics", own()).unwrap();
    let nic = |network: &str, mac: &str, connected: bool, ips: &[&str]| json!({"network": network, "mac": mac, "connected": connected, "ips": ips});
    assert_eq!(
        answer,
        json!({"nics": [
            nic("prod", "00:50:56:00:00:01", true, &["10.0.0.1", "fe80::1"]),
            nic("b/c & <d>", "00:50:56:00:00:02", true, &["10.0.0.2"]),
            nic("VM Network", "00:50:56:00:00:03", false, &[]),
            nic("of the guest", "00:50:56:00:00:04", true, &[]),
            nic("dvportgroup-98", "00:50:56:00:00:05", true, &[]),
        ]})
    );
    assert_eq!(bench.play.sent.len(), 2, "one read says all of it");
}

#[test]
fn a_result_in_pages_is_read_to_its_end() {
    let mut bench = Bench::new();
    bench.vcenter().page = 1;
    let nics = bench.call("vm.nics", own()).unwrap();
    assert_eq!(nics["nics"][0]["network"], "prod");
}
