//! Tests of the dialect `Json`. Those of structural schemas stand with the embedded API.

use serde_json::{Value, json};

use super::{Dialect, Schema, compile};

fn compiled(schema: &Value) -> Schema {
    compile(Dialect::Json, "", schema).unwrap_or_else(|e| panic!("{e}"))
}

/// What is said of a value; nothing if it is valid.
fn said(schema: &Value, value: &Value) -> String {
    let checked = compiled(schema).check(value);
    checked.err().map(|causes| causes.to_string()).unwrap_or_default()
}

fn refused(schema: &Value) -> String {
    let compiled = compile(Dialect::Json, "configSchema", schema);
    compiled.expect_err("it is refused").to_string()
}

#[test]
fn a_keyword_constrains_what_it_is_for() {
    for (schema, good, bad, why) in [
        (
            json!({"type": "string"}),
            json!(""),
            json!(1),
            "must be a string, not an integer",
        ),
        (
            json!({"type": ["string", "null"]}),
            json!(null),
            json!([]),
            "must be a string or null, not a list",
        ),
        (
            json!({"type": "object"}),
            json!({}),
            json!(null),
            "must be an object, not null",
        ),
        (
            json!({"type": "integer"}),
            json!(3.0),
            json!(3.5),
            "must be an integer, not a number",
        ),
        (
            json!({"enum": ["a", 1]}),
            json!(1),
            json!(null),
            "must be one of \"a\", 1",
        ),
        (
            json!({"const": {"a": 1}}),
            json!({"a": 1}),
            json!({}),
            "must be {\"a\":1}",
        ),
        (json!(true), json!(null), json!(null), ""),
        (json!({"not": false}), json!(null), json!(null), ""),
        (json!({"minimum": 1}), json!(1), json!(0), "must be 1 or more"),
        (json!({"maximum": 1}), json!(1), json!(1.5), "must be 1 or less"),
        (
            json!({"exclusiveMinimum": 1}),
            json!(1.1),
            json!(1),
            "must be more than 1",
        ),
        (
            json!({"exclusiveMaximum": 1}),
            json!(0),
            json!(1),
            "must be less than 1",
        ),
        (
            json!({"multipleOf": 5}),
            json!(10),
            json!(12),
            "must be a multiple of 5",
        ),
        (
            json!({"type": "integer", "format": "uint8"}),
            json!(255),
            json!(256),
            "must have the format uint8",
        ),
        (
            json!({"type": "integer", "format": "uint64"}),
            json!(u64::MAX),
            json!(-1),
            "must have the format uint64",
        ),
        (
            json!({"format": "a-format-of-nobody"}),
            json!("x"),
            json!("x"),
            "",
        ),
        (
            json!({"minLength": 1}),
            json!("é"),
            json!(""),
            "must have at least 1 character",
        ),
        (
            json!({"maxLength": 1}),
            json!("é"),
            json!("ab"),
            "must have at most 1 character",
        ),
        (
            json!({"pattern": "^a+$"}),
            json!("aa"),
            json!("ab"),
            "must match the pattern ^a+$",
        ),
        (
            json!({"minItems": 2}),
            json!([1, 2]),
            json!([1]),
            "must have at least 2 items",
        ),
        (
            json!({"maxItems": 1}),
            json!([1]),
            json!([1, 2]),
            "must not have more than 1, and has 2",
        ),
        (
            json!({"minProperties": 1}),
            json!({"a": 1}),
            json!({}),
            "must have at least 1 field",
        ),
        (
            json!({"not": {"const": 1}}),
            json!(2),
            json!(1),
            "must not match what its schema excludes",
        ),
        (
            json!({"oneOf": [{"minimum": 1}, {"minimum": 2}]}),
            json!(1),
            json!(2),
            "must match only one of its alternatives",
        ),
        (
            json!({"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            json!(null),
            json!("x"),
            "must be an integer or null, not a string",
        ),
        (
            json!({"oneOf": [{"const": "a", "description": "A."}, {"const": "b"}]}),
            json!("b"),
            json!("c"),
            "must be one of \"a\", \"b\"",
        ),
    ] {
        assert_eq!(said(&schema, &good), "", "{schema}: {good}");
        let why = if why.is_empty() {
            String::new()
        } else {
            format!("(document): {why}")
        };
        assert_eq!(said(&schema, &bad), why, "{schema}: {bad}");
    }
}

#[test]
fn an_error_has_the_path_of_what_is_wrong() {
    let schema = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string"},
            "disks": {"items": {"anyOf": [{"type": "object", "properties": {"size": {"type": "integer"}}}, {"type": "null"}]}},
            "pair": {"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false},
            "source": {"oneOf": [
                {"type": "object", "required": ["secret"], "properties": {"secret": {"minLength": 1}}},
                {"type": "object", "required": ["role"], "properties": {"role": {"type": "string"}}},
            ]},
            "kind": {"oneOf": [
                {"properties": {"type": {"const": "a"}, "size": {"type": "integer"}}, "required": ["type"]},
                {"properties": {"type": {"const": "b"}, "size": {"type": "string"}}, "required": ["type"]},
            ]},
            "codes": {"propertyNames": {"enum": ["aborted"]}, "additionalProperties": {"type": "integer"}},
            "ids": {"uniqueItems": true},
        },
        "additionalProperties": false,
    });
    for (value, why) in [
        (json!({}), "name: is missing; it must be there"),
        (json!({"name": "a", "nam": 1}), "nam: is not a known field"),
        (
            json!({"name": "a", "disks": [null, {"size": "secret"}]}),
            "disks[1].size: must be an integer, not a string",
        ),
        (
            json!({"name": "a", "pair": ["a", "b"]}),
            "pair[1]: must be an integer, not a string",
        ),
        (
            json!({"name": "a", "pair": ["a", 1, 2]}),
            "pair[2]: must not be there",
        ),
        (
            json!({"name": "a", "source": {"role": 1}}),
            "source.role: must be a string, not an integer",
        ),
        (
            json!({"name": "a", "source": {}}),
            "source: must be one of {\"secret\": …}, {\"role\": …}",
        ),
        (
            json!({"name": "a", "source": 7}),
            "source: must be an object, not an integer",
        ),
        (
            json!({"name": "a", "kind": {"type": "b", "size": 1}}),
            "kind.size: must be a string, not an integer",
        ),
        (
            json!({"name": "a", "codes": {"lost": 1}}),
            "codes.lost: its name must be \"aborted\"",
        ),
        (
            json!({"name": "a", "ids": [1, 2, 1]}),
            "ids[2]: must differ from all items before it",
        ),
        (
            json!({"name": 1, "nam": 1}),
            "nam: is not a known field; name: must be a string, not an integer",
        ),
    ] {
        assert_eq!(said(&schema, &value), why, "{value}");
    }
}

#[test]
fn what_is_not_understood_is_refused_by_name() {
    for (schema, why) in [
        (
            json!({"properties": {"a": {"contains": {}}}}),
            "configSchema.properties[a].contains: Forbidden: the keyword contains is not known",
        ),
        (
            json!({"nullable": true}),
            "configSchema.nullable: Forbidden: the keyword nullable is not known",
        ),
        (
            json!({"type": "text"}),
            "configSchema.type: Unsupported value: \"text\": supported values: array",
        ),
        (json!({"type": []}), "configSchema.type: Unsupported value: []"),
        (
            json!({"minLength": "1"}),
            "configSchema.minLength: Invalid value: \"1\": must be a whole number",
        ),
        (
            json!({"exclusiveMinimum": true}),
            "configSchema.exclusiveMinimum: Invalid value: true: must be a number",
        ),
        (
            json!({"required": "a"}),
            "configSchema.required: Invalid value: \"a\": must be a list of names",
        ),
        (
            json!({"anyOf": []}),
            "configSchema.anyOf: Invalid value: []: must be a list of schemas",
        ),
        (
            json!({"items": 7}),
            "configSchema.items: Invalid value: 7: must be an object",
        ),
        (json!([]), "configSchema: Invalid value: []: must be an object"),
        (
            json!({"pattern": "(?=a)"}),
            "configSchema.pattern: Invalid value: \"(?=a)\": must be a valid regular expression",
        ),
    ] {
        let refused = refused(&schema);
        assert!(refused.starts_with(why), "{schema}: {refused}");
    }
    for schema in [
        json!({"$ref": "#/$defs/a"}),
        json!({"items": {"$ref": "file:///etc/passwd"}}),
        json!({"$defs": {"a": {}}}),
    ] {
        let refused = refused(&schema);
        assert!(
            refused.contains("references are not followed: a schema inlines"),
            "{refused}"
        );
    }
    compiled(
        &json!({"title": "a", "default": 1, "examples": [], "$schema": "x", "readOnly": true, "x-of": 1}),
    );
}

#[test]
fn a_schema_whose_evaluation_never_ends_is_too_much_to_check() {
    // Each value is compared with all alternatives, and only the last one allows it.
    let many = |alternative: Value| {
        let alternatives = std::iter::repeat_n(alternative, 200).chain([json!({})]);
        json!({"items": {"anyOf": alternatives.collect::<Value>()}})
    };
    assert_eq!(
        said(&many(json!({"const": 1})), &json!(vec![0; 20_000])),
        format!(
            "(document): is too much to check: the schema takes more than {} steps",
            1_000_000 + 16 * 20_001
        )
    );
    let nested = json!({"anyOf": [{"anyOf": [{"const": 1}, {"const": 2}]}, {"const": 3}]});
    for (alternative, value) in [
        (nested, json!(0)),
        (json!({"enum": vec!["x".repeat(100); 10]}), json!("x".repeat(99))),
        (json!({"pattern": "(a|b)*a(a|b){100}$"}), json!("c".repeat(100))),
        (json!({"uniqueItems": true}), json!([0, "x".repeat(100), 0])),
        (json!({"required": vec!["x"; 100]}), json!({"a": 1})),
    ] {
        let words = said(&many(alternative), &json!(vec![value; 5_000]));
        assert!(words.contains("too much to check"), "{words}");
    }
}

#[test]
fn a_value_of_any_size_is_checked_by_a_schema_that_describes_it() {
    let item = json!({
        "type": "object",
        "required": ["name", "size"],
        "properties": {"name": {"type": "string", "minLength": 1}, "size": {"type": "integer", "minimum": 0}},
        "additionalProperties": false,
    });
    let value = json!(vec![json!({"name": "a", "size": 1}); 100_000]);
    assert_eq!(said(&json!({"type": "array", "items": item}), &value), "");
    assert_eq!(
        said(&json!({"uniqueItems": true}), &(0..200_000).collect::<Value>()),
        ""
    );
}

#[test]
fn a_pattern_takes_no_longer_than_its_text() {
    let schema = json!({"type": "string", "pattern": "^(a|a|aa)*(a*)*b$"});
    assert_eq!(
        said(&schema, &json!("a".repeat(100_000))),
        "(document): must match the pattern ^(a|a|aa)*(a*)*b$"
    );
}

#[test]
fn very_many_errors_are_not_all_said() {
    let schema = json!({"items": {"type": "string"}});
    let causes = compiled(&schema)
        .check(&json!(vec![0; 100_000]))
        .expect_err("no texts");
    assert_eq!(causes.into_iter().count(), 20);
    let schema = json!({"additionalProperties": {"enum": vec!["y".repeat(1_000); 100]}});
    let words = said(&schema, &json!({"x".repeat(100_000): 1}));
    assert!(words.chars().count() <= 501, "{} bytes", words.len());
    let schema = json!({"properties": (0..1_000).map(|n| (n.to_string(), json!({"type": 1}))).collect::<serde_json::Map<_, _>>()});
    let refused = compile(Dialect::Json, "", &schema).expect_err("no types");
    assert_eq!(refused.into_iter().count(), 20);
}

#[test]
fn a_schema_has_limits() {
    let deep = (0..70).fold(json!({}), |below, _| json!({"not": below}));
    assert!(refused(&deep).contains("schemas nest at most 64 deep"));
    let wide = json!({"anyOf": vec![json!({}); 20_000]});
    assert_eq!(
        refused(&wide),
        "configSchema.anyOf[9999]: Forbidden: a schema has at most 10000 subschemas"
    );
    let long = json!({"pattern": "a".repeat(2_000)});
    assert!(refused(&long).contains("a pattern has at most 1024 bytes, and this has 2000"));
    let many = json!({"anyOf": (0..100).map(|n| json!({"pattern": format!("{n}{}", "a".repeat(500))})).collect::<Value>()});
    assert!(refused(&many).contains("the patterns of a schema have at most 16384 bytes together"));
    let large = json!({"pattern": "(\\pL{1000}){1000}"});
    assert!(
        refused(&large).contains("exceeds size limit"),
        "{}",
        refused(&large)
    );
    let large = json!({"anyOf": vec![json!({"pattern": "\\pL{100}"}); 10]});
    assert!(
        refused(&large).contains("take at most 4194304 bytes together"),
        "{}",
        refused(&large)
    );
}

#[test]
fn no_message_quotes_the_value() {
    let schema = json!({
        "items": {"anyOf": [{"type": "integer", "maximum": 7}, {"const": "a"}, {"type": "array", "minItems": 9}]},
        "maxItems": 2, "uniqueItems": true,
    });
    let words = said(&schema, &json!(["hunter22", "hunter22", [22_222], 22_222]));
    assert!(!words.contains("22"), "{words}");
}
