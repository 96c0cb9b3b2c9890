//! Clones.

use polity_driver_sdk::prelude::*;

use crate::bench::{Bench, clone_arguments};

/// The arguments of a clone with some others.
fn with(others: Value) -> Value {
    let mut arguments = clone_arguments();
    for (name, value) in others.as_object().expect("fields") {
        arguments[name] = value.clone();
    }
    arguments
}

#[test]
fn a_clone_is_marked_and_answers_its_task() {
    let mut bench = Bench::new();
    let task = bench.call("vm.clone", clone_arguments()).unwrap();
    assert_eq!(bench.changes(), 1);
    let told = bench.call("task.get", json!({"id": task["task"]})).unwrap();
    assert_eq!(
        (&told["kind"], &told["state"]),
        (&json!("clone"), &json!("success"))
    );
    let found = bench.call("vm.find", json!({"instanceUuid": "uuid-2"})).unwrap();
    assert_eq!((&found["id"], &found["name"]), (&told["vm"], &json!("m-2")));
    let vcenter = bench.vcenter();
    let made = vcenter.vms.last().unwrap();
    assert_eq!(made.folder, "DC0/vm/team-a");
    let marks = [
        ("polity.owner", "owner-1"),
        ("polity.tenant", "tenant-1"),
        ("polity.key", "key-1"),
    ];
    assert_eq!(made.options, crate::vcenter::options(&marks));
    assert_eq!(vcenter.tasks[0].activation, "key-1");
}

#[test]
fn the_call_of_a_clone_has_its_elements_in_the_order_of_the_schema() {
    let mut bench = Bench::new();
    let arguments = with(json!({
        "datastore": "ds1", "diskGiB": 20, "networks": ["prod", "VM Network"], "resourcePool": "C0",
        "userData": {"$secret": {"name": "s", "key": "k"}},
    }));
    bench
        .play
        .secrets
        .insert("userData".to_owned(), "#cloud-config".to_owned());
    bench.call("vm.clone", arguments).unwrap();
    let option = |key: &str, value: &str| {
        format!(
            r#"<extraConfig xsi:type="OptionValue"><key>{key}</key><value xsi:type="xsd:string">{value}</value></extraConfig>"#
        )
    };
    let connectable = "<connectable><startConnected>true</startConnected><allowGuestControl>true</allowGuestControl><connected>true</connected></connectable><addressType>generated</addressType>";
    let expected = [
        r#"<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" "#,
        r#"xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">"#,
        "<soapenv:Header><operationID>key-1</operationID></soapenv:Header><soapenv:Body>",
        r#"<CloneVM_Task xmlns="urn:vim25"><_this type="VirtualMachine">vm-20</_this><folder type="Folder">group-v10</folder><name>m-2</name>"#,
        r#"<spec><location><datastore type="Datastore">datastore-11</datastore><pool type="ResourcePool">resgroup-8</pool></location>"#,
        "<template>false</template><config><instanceUuid>uuid-2</instanceUuid>",
        "<flags><diskUuidEnabled>true</diskUuidEnabled></flags><numCPUs>4</numCPUs>",
        "<numCoresPerSocket>2</numCoresPerSocket><memoryMB>2048</memoryMB>",
        r#"<deviceChange><operation>remove</operation><device xsi:type="VirtualVmxnet3"><key>4000</key></device></deviceChange>"#,
        r#"<deviceChange><operation>edit</operation><device xsi:type="VirtualDisk"><key>2000</key><backing xsi:type="VirtualDiskFlatVer2BackingInfo">"#,
        "<fileName>[ds1] ubuntu/ubuntu.vmdk</fileName><diskMode>persistent</diskMode><thinProvisioned>true</thinProvisioned></backing>",
        "<controllerKey>1000</controllerKey><unitNumber>0</unitNumber><capacityInKB>20971520</capacityInKB></device></deviceChange>",
        r#"<deviceChange><operation>add</operation><device xsi:type="VirtualVmxnet3"><key>-101</key><backing xsi:type="VirtualEthernetCardDistributedVirtualPortBackingInfo">"#,
        "<port><switchUuid>50 2a</switchUuid><portgroupKey>dvportgroup-13</portgroupKey></port></backing>",
        connectable,
        r#"</device></deviceChange><deviceChange><operation>add</operation><device xsi:type="VirtualVmxnet3"><key>-102</key><backing xsi:type="VirtualEthernetCardNetworkBackingInfo">"#,
        r#"<deviceName>VM Network</deviceName><network type="Network">network-12</network></backing>"#,
        connectable,
        "</device></deviceChange>",
        &option("polity.owner", "owner-1"),
        &option("polity.tenant", "tenant-1"),
        &option("polity.key", "key-1"),
        &option("guestinfo.userdata", "base64(#cloud-config)"),
        &option("guestinfo.userdata.encoding", "base64"),
        "<vAppConfigRemoved>true</vAppConfigRemoved></config><powerOn>false</powerOn></spec></CloneVM_Task></soapenv:Body></soapenv:Envelope>",
    ];
    assert_eq!(bench.changed(), expected.concat());
}

#[test]
fn a_clone_has_no_properties_of_its_template_and_its_guest_sees_the_uuids_of_disks() {
    let mut bench = Bench::new();
    bench.call("vm.clone", clone_arguments()).unwrap();
    let sent = bench.changed();
    let (_, config) = sent.split_once("<config>").unwrap();
    let (config, _) = config.split_once("</config>").unwrap();
    assert!(config.contains("<flags><diskUuidEnabled>true</diskUuidEnabled></flags><numCPUs>"));
    assert!(config.ends_with("<vAppConfigRemoved>true</vAppConfigRemoved>"));
}

#[test]
fn without_networks_a_clone_keeps_the_interfaces_of_its_template() {
    let mut bench = Bench::new();
    bench.call("vm.clone", clone_arguments()).unwrap();
    assert!(!bench.changed().contains("deviceChange"));
    bench.play.config["networks"] = json!(["prod"]);
    bench.call("vm.clone", with(json!({"name": "m-3"}))).unwrap();
    let changed = bench.changed();
    assert!(changed.contains("<operation>remove</operation>") && changed.contains("dvportgroup-13"));
}

#[test]
fn a_disk_grows_only_if_it_must_and_never_shrinks() {
    let mut bench = Bench::new();
    bench.call("vm.clone", with(json!({"diskGiB": 10}))).unwrap();
    assert!(!bench.changed().contains("VirtualDisk"), "it has that size");
    for gib in [1, 9] {
        assert_eq!(
            bench.code("vm.clone", with(json!({"diskGiB": gib, "name": "m-3"}))),
            Code::InvalidArgument
        );
        assert_eq!(bench.changes(), 0);
    }
}

#[test]
fn a_size_is_for_a_template_with_one_disk() {
    for disks in [0, 2] {
        let mut bench = Bench::new();
        {
            let mut vcenter = bench.vcenter();
            let devices = &mut vcenter.vm("vm-20").devices;
            let disk = devices.remove(0);
            devices.extend(std::iter::repeat_n(disk, disks));
        }
        assert_eq!(
            bench.code("vm.clone", with(json!({"diskGiB": 20}))),
            Code::InvalidArgument
        );
        assert!(
            bench.call("vm.clone", clone_arguments()).is_ok(),
            "without a size it does not matter"
        );
    }
}

#[test]
fn a_disk_that_is_no_file_does_not_grow() {
    let mut bench = Bench::new();
    {
        let mut vcenter = bench.vcenter();
        let disk = &mut vcenter.vm("vm-20").devices[0];
        *disk = disk.replace(
            "VirtualDiskFlatVer2BackingInfo",
            "VirtualDiskRawDiskMappingVer1BackingInfo",
        );
    }
    assert_eq!(
        bench.code("vm.clone", with(json!({"diskGiB": 20}))),
        Code::InvalidArgument
    );
}

#[test]
fn what_is_not_there_is_said_before_anything_is_created() {
    for (others, code) in [
        (json!({"template": "none"}), Code::NotFound),
        (json!({"template": "team-a"}), Code::NotFound),
        (json!({"template": "team-a/m-1"}), Code::NotFound),
        (json!({"folder": "none"}), Code::InvalidArgument),
        (json!({"folder": "ubuntu"}), Code::InvalidArgument),
        (json!({"datacenter": "DC9"}), Code::NotFound),
        (json!({"datastore": "none"}), Code::InvalidArgument),
        (json!({"resourcePool": "C0/none"}), Code::InvalidArgument),
        (json!({"networks": ["prod", "none"]}), Code::InvalidArgument),
        (json!({"networks": ["nsx"]}), Code::InvalidArgument),
    ] {
        let mut bench = Bench::new();
        assert_eq!(bench.code("vm.clone", with(others.clone())), code, "{others}");
        assert_eq!(bench.changes(), 0, "{others}");
    }
}

#[test]
fn a_vm_is_no_template_and_is_not_told_apart_from_none() {
    let mut bench = Bench::new();
    let absent = bench
        .call("vm.clone", with(json!({"template": "team-a/m-9"})))
        .unwrap_err();
    let vm = bench
        .call("vm.clone", with(json!({"template": "team-a/m-1"})))
        .unwrap_err();
    assert_eq!(
        (absent.code, absent.message.replace("m-9", "m-1")),
        (vm.code, vm.message)
    );
}

#[test]
fn a_template_whose_configuration_cannot_be_read_is_not_absent() {
    let mut bench = Bench::new();
    bench.vcenter().vm("vm-20").is_configured = false;
    assert_eq!(bench.code("vm.clone", clone_arguments()), Code::Unavailable);
}

#[test]
fn a_clone_needs_a_pool_and_a_datacenter() {
    let mut bench = Bench::new();
    bench.play.config = json!({"datacenter": "DC0"});
    assert_eq!(bench.code("vm.clone", clone_arguments()), Code::InvalidArgument);
    bench.play.config = json!({"resourcePool": "C0/Resources"});
    assert_eq!(bench.code("vm.clone", clone_arguments()), Code::InvalidArgument);
    let whole = json!({
        "template": "/DC0/vm/ubuntu", "folder": "/DC0/vm/team-a", "resourcePool": "/DC0/host/C0/Resources/team-a",
    });
    assert!(bench.call("vm.clone", with(whole)).is_ok());
}

#[test]
fn a_name_that_is_taken_is_refused_without_an_effect() {
    let mut bench = Bench::new();
    let failure = bench.call("vm.clone", with(json!({"name": "m-1"}))).unwrap_err();
    assert_eq!((failure.code, failure.doubtful), (Code::AlreadyExists, false));
}

#[test]
fn reads_of_a_clone_go_together() {
    let mut bench = Bench::new();
    bench
        .call(
            "vm.clone",
            with(json!({"datastore": "ds1", "networks": ["prod", "prod"]})),
        )
        .unwrap();
    let methods: Vec<String> = bench
        .play
        .sent
        .iter()
        .map(|request| {
            let body = bench.play.body(request);
            let (_, rest) = body.split_once("<soapenv:Body><").unwrap();
            rest.split(' ').next().unwrap().to_owned()
        })
        .collect();
    let count = |name: &str| methods.iter().filter(|method| *method == name).count();
    assert_eq!(count("FindByInventoryPath"), 5, "the network once");
    assert_eq!(count("RetrieveServiceContent"), 1);
    assert_eq!(methods.last().unwrap(), "CloneVM_Task");
}
