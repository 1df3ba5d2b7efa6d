{{/* The driver's name: that of a vendor with a component as-…, otherwise the value. */}}
{{- define "claimd.driver" -}}
{{- $name := .Values.driverName -}}
{{- range .Values.components -}}
{{- if hasPrefix "as-" . -}}
{{- $name = printf "gpu.%s.com" (trimPrefix "as-" .) -}}
{{- end -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "claimd.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* True if probes use a socket in the pod instead of a port, which two pods of a node would share. */}}
{{- define "claimd.socket" -}}
{{- if or .Values.hostNetwork (has "fake" .Values.components) -}}true{{- end -}}
{{- end -}}

{{/* True if there are metrics: the component metrics-tls includes the component metrics. */}}
{{- define "claimd.metrics" -}}
{{- if or (has "metrics" .Values.components) (has "metrics-tls" .Values.components) -}}true{{- end -}}
{{- end -}}

{{/* Refuses values that exclude each other, which the schema cannot express. */}}
{{- define "claimd.check" -}}
{{- $v := .Values -}}
{{- $drivers := list -}}
{{- range $v.components -}}
{{- if hasPrefix "as-" . -}}
{{- $drivers = append $drivers . -}}
{{- end -}}
{{- end -}}
{{- if gt (len $drivers) 1 -}}
{{- fail (printf "components: %s: a driver has one name, so claimd takes the place of one vendor's driver at most" (join " and " $drivers)) -}}
{{- end -}}
{{- if and $drivers (ne $v.driverName "gpu.claimd.dev") -}}
{{- fail (printf "driverName: the component %s says the driver's name; leave this one out" (first $drivers)) -}}
{{- end -}}
{{- if and (index $v.settings "vfio-bind") (not (has "vfio" $v.components)) -}}
{{- fail "settings.vfio-bind: claimd may not bind GPUs to vfio-pci without the component vfio; add it to components" -}}
{{- end -}}
{{- if and $v.monitor.kind (not (include "claimd.metrics" .)) -}}
{{- fail (printf "monitor.kind: there is nothing that a %s could read without the component metrics; add it to components" $v.monitor.kind) -}}
{{- end -}}
{{- if and $v.monitor.tokenSecret (not (has "metrics-tls" $v.components)) -}}
{{- fail "monitor.tokenSecret: a token is sent over TLS alone; add metrics-tls to components, or leave this one out" -}}
{{- end -}}
{{- if and (eq $v.monitor.kind "PodMonitor") (has "metrics-tls" $v.components) (not $v.monitor.tokenSecret) -}}
{{- fail "monitor.tokenSecret: a PodMonitor has to name the Secret with the token to scrape with; say its name, or take a ServiceMonitor, which sends Prometheus' own" -}}
{{- end -}}
{{- if and $v.hostNetwork (include "claimd.metrics" .) (ne (toString $v.updateStrategy.maxSurge) "0") -}}
{{- fail "hostNetwork: the two pods of an update cannot both have the metrics' port of the node; set updateStrategy to maxSurge 0 and maxUnavailable 1, or leave the component metrics out" -}}
{{- end -}}
{{- end -}}
