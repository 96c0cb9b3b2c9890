//! The definitions that the policy brings: every kind, and closed wherever people write.

use serde_json::{Value, json};

#[test]
fn the_crds_are_a_list_of_every_kind() {
    let manifest = capa_identity::manifest();
    let list: Value = manifest.as_contract().crd.clone().unwrap();
    let kinds: Vec<&str> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|crd| crd["spec"]["names"]["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "AWSCluster",
            "AWSMachine",
            "AWSClusterControllerIdentity",
            "AWSClusterStaticIdentity",
            "AWSClusterRoleIdentity",
            "AWSServiceAccountIdentity"
        ]
    );
    let schema =
        |n: usize| &list["items"][n]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
    let cluster = &schema(0)["spec"]["properties"];
    let account = &cluster["accountID"];
    assert_eq!(
        (&account["type"], &account["nullable"]),
        (&json!("string"), &json!(true))
    );
    assert!(account["description"].is_string());
    assert!(cluster.get("clusterName").is_none());
    let allowed = &schema(2)["spec"]["properties"]["allowedNamespaces"];
    assert_eq!(
        (&allowed["type"], &allowed["nullable"]),
        (&json!("object"), &json!(true))
    );
    assert_eq!(
        allowed["properties"]["selector"]["properties"]["matchLabels"]["additionalProperties"]["type"],
        "string"
    );
    let seconds = &schema(4)["spec"]["properties"]["durationSeconds"];
    assert_eq!(
        (&seconds["minimum"], &seconds["maximum"]),
        (&json!(900), &json!(43_200))
    );
}

#[test]
fn the_crds_are_closed_wherever_people_write() {
    /// Whether these fields fit a closed schema, as an API server counts them.
    fn fits(schema: &Value, fields: &[&str]) -> bool {
        let has = |name: &Value| fields.iter().any(|field| name == field);
        let whole = |choice: &Value| {
            let required = choice["required"].as_array();
            required.is_none_or(|names| names.iter().all(has))
                && choice["maxProperties"]
                    .as_u64()
                    .is_none_or(|most| fields.len() as u64 <= most)
        };
        let choices = schema["anyOf"].as_array();
        assert_eq!(schema["x-kubernetes-preserve-unknown-fields"], true, "{schema}");
        whole(schema) && choices.is_none_or(|choices| choices.iter().any(whole))
    }

    let manifest = capa_identity::manifest();
    let list: Value = manifest.as_contract().crd.clone().unwrap();
    let crds = list["items"].as_array().unwrap().iter();
    let specs = crds.map(|crd| {
        let version = &crd["spec"]["versions"][0];
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
        (
            kind,
            version["schema"]["openAPIV3Schema"]["properties"]["spec"].clone(),
        )
    });
    let mut closed = 0;
    for (kind, spec) in specs {
        let allowed = &spec["properties"]["allowedNamespaces"];
        let selector = &allowed["properties"]["selector"];
        let expression = &selector["properties"]["matchExpressions"]["items"];
        let references =
            ["identityRef", "sourceIdentityRef", "secretRef"].map(|name| &spec["properties"][name]);
        let all = [&spec, allowed, selector, expression]
            .into_iter()
            .chain(references);
        for schema in all.filter(|schema| !schema.is_null()) {
            let known: Vec<&str> = schema["properties"]
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            let required = schema["required"].as_array().into_iter().flatten();
            let required: Vec<&str> = required.filter_map(Value::as_str).collect();
            assert!(
                fits(schema, &known) && fits(schema, &required),
                "{kind}: {schema}"
            );
            for fields in [&known, &required] {
                let typo = [&fields[..], &["tpyo"]].concat();
                assert!(!fits(schema, &typo), "{kind}: {typo:?}");
            }
            closed += 1;
        }
    }
    assert_eq!(closed, 6 + 4 * 3 + 3);
}
