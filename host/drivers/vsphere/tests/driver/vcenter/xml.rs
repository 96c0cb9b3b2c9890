//! XML as a vCenter writes it.

/// Text, escaped for XML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// An element with a text.
pub(crate) fn text(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escaped(text))
}

/// An element with a type, around content that is XML already.
pub(crate) fn typed(name: &str, kind: &str, inside: &str) -> String {
    format!(r#"<{name} xsi:type="{kind}">{inside}</{name}>"#)
}

/// A value of a basic type.
pub(crate) fn value(kind: &str, value: &str) -> String {
    typed("val", kind, &escaped(value))
}

/// A reference, as an element of its own type.
pub(crate) fn reference(name: &str, (kind, id): (&str, &str)) -> String {
    format!(r#"<{name} type="{kind}">{id}</{name}>"#)
}

/// A reference in the place of any value.
pub(crate) fn any_reference(name: &str, (kind, id): (&str, &str)) -> String {
    format!(r#"<{name} type="{kind}" xsi:type="ManagedObjectReference">{id}</{name}>"#)
}

/// The envelope around a body.
pub(crate) fn envelope(body: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<soapenv:Envelope \
         xmlns:soapenc=\"http://schemas.xmlsoap.org/soap/encoding/\" \
         xmlns:soapenv=\"http://schemas.xmlsoap.org/soap/envelope/\" \
         xmlns:xsd=\"http://www.w3.org/2001/XMLSchema\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">\n<soapenv:Body>\n{body}\n</soapenv:Body>\n\
         </soapenv:Envelope>"
    )
}

/// The response of a method.
pub(crate) fn response(method: &str, inside: &str) -> String {
    envelope(&format!(
        r#"<{method}Response xmlns="urn:vim25">{inside}</{method}Response>"#
    ))
}

/// A SOAP fault.
pub(crate) fn fault(name: &str, inside: &str) -> String {
    envelope(&format!(
        "<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>it is {name}</faultstring>\
         <detail><{name}Fault xmlns=\"urn:vim25\" xsi:type=\"{name}\">{inside}</{name}Fault></detail></soapenv:Fault>"
    ))
}
