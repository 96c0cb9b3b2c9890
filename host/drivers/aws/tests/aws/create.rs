//! Creates.

use polity_driver_sdk::Code;
use polity_driver_sdk::test::Reply;
use serde_json::{Value, json};

use crate::ec2::{IMAGE, named, object, server, small};

#[test]
fn a_machine_is_created_with_its_marks_in_one_request() {
    let (server, key) = (server(), "key-1");
    let mut owner = object(&server);
    let made = owner.create("web-1");
    let id = &server.borrow().instances[0].id.clone();
    assert_eq!(
        made,
        json!({
            "providerID": format!("aws:///eu-central-1a/{id}"),
            "nodeName": "ip-10-0-0-1.eu-central-1.compute.internal",
            "lastKnownState": format!("made as {id}"),
        })
    );
    assert_eq!(owner.changes(), 1);
    let sent = owner.sent();
    let run = &sent[1];
    assert_eq!((&*run["Action"], &*run["ClientToken"]), ("RunInstances", key));
    let marks = [
        ("Name", "web-1"),
        ("polity.dev/key", key),
        ("polity.dev/owner", "owner-1"),
        ("polity.dev/tenant", "tenant-1"),
    ];
    for kind in ["instance", "volume", "network-interface"] {
        let tags = run.tags(kind);
        let tags: Vec<(&str, &str)> = tags.iter().map(|(key, value)| (&**key, &**value)).collect();
        assert_eq!(tags, marks, "{kind}");
    }
}

/// The fields of the request for an instance of this class that have one of these words in their names.
fn launched(more: Value, words: &[&str]) -> Vec<(String, String)> {
    let server = server();
    let mut owner = object(&server);
    let mut spec = small();
    for (field, value) in more.as_object().unwrap() {
        spec[field] = value.clone();
    }
    owner
        .perform("machine.create", json!({"name": "web-1", "providerSpec": spec}))
        .unwrap();
    let sent = owner.sent();
    let run = sent.iter().find(|form| form["Action"] == "RunInstances").unwrap();
    let fields = run.below("").into_iter();
    fields
        .filter(|(name, _)| words.iter().any(|word| name.contains(word)))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[test]
fn a_launch_has_addresses_or_prefixes_and_the_first_address_is_the_primary_one() {
    let interface = |more: Value| {
        let mut interface = json!({"subnetID": "subnet-1"});
        for (field, value) in more.as_object().unwrap() {
            interface[field] = value.clone();
        }
        let launched = launched(json!({"networkInterfaces": [interface]}), &["Ipv6"]);
        let short = |(name, value): &(String, String)| {
            format!("{}={value}", name.trim_start_matches("NetworkInterface.1."))
        };
        launched.iter().map(short).collect::<Vec<_>>()
    };
    let both = json!({"ipv6AddressCount": 1, "ipv6PrefixCount": 2});
    assert_eq!(interface(both), ["Ipv6AddressCount=1", "PrimaryIpv6=true"]);
    let not_primary = json!({"ipv6AddressCount": 1, "primaryIpv6": false});
    assert_eq!(
        interface(not_primary),
        ["Ipv6AddressCount=1", "PrimaryIpv6=false"]
    );
    assert_eq!(interface(json!({"ipv6PrefixCount": 2})), ["Ipv6PrefixCount=2"]);
    assert_eq!(interface(json!({})), [""; 0]);
}

#[test]
fn a_class_of_machine_controller_manager_loads() {
    let class = json!({
        "tags": {"Name": "of the class", "team": "a"},
        "networkInterfaces": [
            {"subnetID": "subnet-1", "deviceIndex": 1, "networkCardIndex": 2, "interfaceType": "interface"},
        ],
        "instanceMarketOptions": {"marketType": "capacity-block"},
        "spotPrice": "0.25",
    });
    let words = [
        "Index",
        "InterfaceType",
        "InstanceMarketOptions",
        "TagSpecification.1.Tag",
    ];
    let launched = launched(class, &words);
    let value = |name: &str| {
        let found = launched.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(value("NetworkInterface.1.DeviceIndex"), Some("1"));
    assert_eq!(value("NetworkInterface.1.NetworkCardIndex"), Some("2"));
    assert_eq!(value("InstanceMarketOptions.MarketType"), Some("capacity-block"));
    assert_eq!(value("InstanceMarketOptions.SpotOptions.MaxPrice"), None);
    // The tag Name is the machine's.
    let values: Vec<&str> = launched.iter().map(|(_, value)| value.as_str()).collect();
    assert!(values.contains(&"web-1") && values.contains(&"team") && !values.contains(&"of the class"));
}

#[test]
fn a_specification_becomes_the_fields_of_the_request() {
    let server = server();
    let mut owner = object(&server);
    let spec = json!({
        "apiVersion": "mcm.gardener.cloud/v1alpha1",
        "ami": IMAGE,
        "machineType": "m5.large",
        "region": "eu-central-1",
        "keyName": "ssh",
        "blockDevices": [
            {"deviceName": "/root", "ebs": {"volumeSize": 50, "volumeType": "gp3", "encrypted": true, "iops": 3000}},
            {"deviceName": "/dev/sdf", "ebs": {"volumeSize": 8, "deleteOnTermination": false, "iops": 0}},
        ],
        "iam": {"name": "node"},
        "networkInterfaces": [
            {"subnetID": "subnet-1", "securityGroupIDs": ["sg-1", "sg-2"], "associatePublicIPAddress": true},
        ],
        "tags": {"kubernetes.io/cluster/prod": "1", "team": "a&b=c d"},
        "spotPrice": "0.25",
        "monitoring": true,
        "ebsOptimized": false,
        "instanceMetadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2, "httpEndpoint": ""},
        "cpuOptions": {"coreCount": 2, "threadsPerCore": 1},
        "placement": {"tenancy": "dedicated"},
        "capacityReservation": {"capacityReservationPreference": "open"},
    });
    owner
        .perform("machine.create", json!({"name": "web-1", "providerSpec": spec}))
        .unwrap();
    let sent = owner.sent();
    let run = sent.iter().find(|form| form["Action"] == "RunInstances").unwrap();
    let tags = run.tags("instance");
    assert_eq!(
        (&*tags["team"], &*tags["kubernetes.io/cluster/prod"]),
        ("a&b=c d", "1")
    );
    let fields: Vec<(&str, &str)> = run.below("");
    let others = [
        "TagSpecification",
        "Action",
        "Version",
        "ClientToken",
        "MinCount",
        "MaxCount",
    ];
    let fields: Vec<_> = fields
        .into_iter()
        .filter(|(name, _)| !others.iter().any(|other| name.starts_with(other)))
        .collect();
    assert_eq!(
        fields,
        [
            ("BlockDeviceMapping.1.DeviceName", "/dev/xvda"),
            ("BlockDeviceMapping.1.Ebs.DeleteOnTermination", "true"),
            ("BlockDeviceMapping.1.Ebs.Encrypted", "true"),
            ("BlockDeviceMapping.1.Ebs.Iops", "3000"),
            ("BlockDeviceMapping.1.Ebs.VolumeSize", "50"),
            ("BlockDeviceMapping.1.Ebs.VolumeType", "gp3"),
            ("BlockDeviceMapping.2.DeviceName", "/dev/sdf"),
            ("BlockDeviceMapping.2.Ebs.DeleteOnTermination", "false"),
            ("BlockDeviceMapping.2.Ebs.VolumeSize", "8"),
            (
                "CapacityReservationSpecification.CapacityReservationPreference",
                "open"
            ),
            ("CpuOptions.CoreCount", "2"),
            ("CpuOptions.ThreadsPerCore", "1"),
            ("IamInstanceProfile.Name", "node"),
            ("ImageId", IMAGE),
            ("InstanceMarketOptions.MarketType", "spot"),
            ("InstanceMarketOptions.SpotOptions.MaxPrice", "0.25"),
            ("InstanceMarketOptions.SpotOptions.SpotInstanceType", "one-time"),
            ("InstanceType", "m5.large"),
            ("KeyName", "ssh"),
            ("MetadataOptions.HttpPutResponseHopLimit", "2"),
            ("MetadataOptions.HttpTokens", "required"),
            ("MetadataOptions.InstanceMetadataTags", "disabled"),
            ("Monitoring.Enabled", "true"),
            ("NetworkInterface.1.AssociatePublicIpAddress", "true"),
            ("NetworkInterface.1.DeleteOnTermination", "true"),
            ("NetworkInterface.1.DeviceIndex", "0"),
            ("NetworkInterface.1.SecurityGroupId.1", "sg-1"),
            ("NetworkInterface.1.SecurityGroupId.2", "sg-2"),
            ("NetworkInterface.1.SubnetId", "subnet-1"),
            ("Placement.Tenancy", "dedicated"),
        ]
    );
}

#[test]
fn the_looks_before_a_create_are_sent_together() {
    let server = server();
    let mut owner = object(&server);
    let mut spec = small();
    spec["blockDevices"] = json!([{"deviceName": "/dev/sda1", "ebs": {"volumeSize": 20}}]);
    owner
        .perform("machine.create", json!({"name": "web-1", "providerSpec": spec}))
        .unwrap();
    assert_eq!(
        owner.actions(),
        ["DescribeInstances", "DescribeImages", "RunInstances"]
    );
    let only = &owner.sent()[2]["BlockDeviceMapping.1.DeviceName"];
    assert_eq!(only, "/dev/xvda", "the only disk is the root device");
}

#[test]
fn an_image_that_is_not_there_or_has_no_root_device_ends_the_create_before_it_begins() {
    let server = server();
    let mut arguments = named("web-1");
    arguments["providerSpec"]["blockDevices"] = json!([{}]);
    arguments["providerSpec"]["ami"] = json!("ami-9");
    let mut owner = object(&server);
    let failure = owner.perform("machine.create", arguments.clone()).unwrap_err();
    assert_eq!((failure.code, failure.doubtful), (Code::InvalidArgument, false));
    let mut say = |body: &str, code: Code| {
        let body = format!("<DescribeImagesResponse><imagesSet>{body}</imagesSet></DescribeImagesResponse>");
        server
            .borrow_mut()
            .instead
            .insert("DescribeImages".into(), Reply::new(200, body));
        let failure = owner.perform("machine.create", arguments.clone()).unwrap_err();
        assert_eq!(
            (failure.code, failure.doubtful),
            (code, false),
            "{}",
            failure.message
        );
    };
    say("<item><imageId>ami-9</imageId></item>", Code::InvalidArgument);
    say(
        "<item><imageId>ami-8</imageId><rootDeviceName>/dev/xvda</rootDeviceName></item>",
        Code::InvalidArgument,
    );
    say("", Code::InvalidArgument);
    assert_eq!(owner.changes(), 0);
}

#[test]
fn a_name_is_taken_until_the_machine_is_gone() {
    let server = server();
    let mut owner = object(&server);
    owner.create("web-1");
    owner.play.key = "key-2".to_owned();
    let failure = owner.perform("machine.create", named("web-1")).unwrap_err();
    assert_eq!((failure.code, failure.doubtful), (Code::AlreadyExists, false));
    assert_eq!(owner.changes(), 1, "nothing is sent");
    server.borrow_mut().instances[0].state = "shutting-down";
    owner.create("web-1");
    let mut other = object(&server);
    (other.play.owner, other.play.key) = ("owner-2".to_owned(), "key-3".to_owned());
    other.create("web-1");
    assert_eq!(server.borrow().instances.len(), 3);
}

#[test]
fn user_data_and_token_are_put_in_by_the_host_and_encoded_there() {
    let server = server();
    let secret = |name: &str| json!({"$secret": {"name": name, "key": "k"}});
    let mut arguments = named("web-1");
    arguments["userData"] = secret("user-data");
    let mut owner = object(&server);
    owner.perform("machine.create", arguments.clone()).unwrap();
    assert_eq!(
        owner.sent()[1]["UserData"],
        "base64(join argument(name) by <<BOOTSTRAP_TOKEN>>!)"
    );
    arguments["bootstrapToken"] = secret("token");
    arguments["name"] = json!("web-2");
    owner.play.key = "key-2".to_owned();
    owner.perform("machine.create", arguments).unwrap();
    assert_eq!(
        owner.sent()[3]["UserData"],
        "base64(join argument(name) by abc.def!)"
    );
    // A token is put into the user data, so without user data it is not sent.
    let mut bare = object(&server);
    bare.play.key = "key-3".to_owned();
    bare.play.owner = "owner-3".to_owned();
    bare.create("web-3");
    assert!(bare.sent()[1].get("UserData").is_none());
}

#[test]
fn no_answer_keeps_user_data() {
    let server = server();
    let mut owner = object(&server);
    owner.create("web-1");
    let kept: Vec<&String> = owner.play.sent.iter().flat_map(|request| &request.keep).collect();
    assert!(!kept.is_empty());
    for path in kept {
        assert!(
            !path.to_ascii_lowercase().contains("userdata") && !path.contains('*'),
            "{path}"
        );
    }
}

#[test]
fn an_account_that_shows_tags_to_its_instances_gets_machines_nevertheless() {
    let server = server();
    server.borrow_mut().shows_tags = true;
    object(&server).create("web-1");
}
