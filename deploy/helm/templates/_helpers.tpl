{{- define "tollgate.labels" -}}
{{ include "tollgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "tollgate.selector" -}}
app.kubernetes.io/name: tollgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Names of Services have at most 63 characters, and the longest suffix has nine. */}}
{{- define "tollgate.name" -}}
{{- .Release.Name | trunc 54 | trimSuffix "-" }}
{{- end }}
