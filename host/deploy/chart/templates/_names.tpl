{{- /*
Injective, so that two releases in one namespace never share a name. (The usual rule, which leaves a name that contains the
chart's as it is, gives "red" and "red-polity" the same one.)
*/}}
{{- define "polity.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if eq .Release.Name .Chart.Name -}}
{{ .Release.Name }}
{{- else -}}
{{ .Release.Name }}-{{ .Chart.Name }}
{{- end -}}
{{- end }}

{{- /* Of roles: they are in namespaces that other releases have too, or in none. A name of a role may have colons. */}}
{{- define "polity.roleName" -}}
{{ .Chart.Name }}:{{ .Release.Namespace }}:{{ include "polity.fullname" . }}
{{- end }}

{{- /* Of what decides about connections: the same with dots, because its name may have no colons. */}}
{{- define "polity.admissionName" -}}
{{ .Chart.Name }}.{{ .Release.Namespace }}.{{ include "polity.fullname" . }}.connections
{{- end }}

{{- define "polity.leaseNamespace" -}}
{{ .Values.lease.namespace | default .Release.Namespace }}
{{- end }}

{{- define "polity.leaseName" -}}
{{ .Values.lease.name | default (include "polity.fullname" .) }}
{{- end }}

{{- define "polity.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "polity.labels" -}}
{{ include "polity.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "polity.image" -}}
{{ .Values.image.repository }}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- /* Where the policies are, as a volume has it. */}}
{{- define "polity.policies" -}}
{{- with .Values.policies.image -}}
image:
  {{- toYaml . | nindent 2 }}
{{- else with .Values.policies.volumeClaim -}}
persistentVolumeClaim:
  claimName: {{ . }}
  readOnly: true
{{- else -}}
projected:
  {{- with .Values.policies.configMaps }}
  # Each is optional: a host without it starts, and says in /readyz which bindings wait for a policy.
  sources:
    {{- range . }}
    - configMap:
        name: {{ . }}
        optional: true
    {{- end }}
  {{- else }}
  sources: []
  {{- end }}
{{- end -}}
{{- end }}
