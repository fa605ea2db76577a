{{- define "stan.name" -}}
{{- default .Release.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "stan.clusterID" -}}
{{- default (include "stan.name" .) .Values.stan.clusterID -}}
{{- end -}}

{{- define "stan.selector" -}}
app.kubernetes.io/name: stan
app.kubernetes.io/instance: {{ include "stan.name" . }}
{{- end -}}

{{- define "stan.labels" -}}
{{ include "stan.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "stan.image" -}}
{{- default (printf "stan:%s" .Chart.AppVersion) .Values.stan.image -}}
{{- end -}}

{{/* "yes" where pods bring their own nats-server. */}}
{{- define "stan.embedded" -}}
{{- if not .Values.stan.nats.url }}yes{{ end -}}
{{- end -}}

{{/* Names of the pods, as JSON. */}}
{{- define "stan.pods" -}}
{{- $pods := list -}}
{{- range $n := until (int .Values.stan.replicas) -}}
{{- $pods = append $pods (printf "%s-%d" (include "stan.name" $) $n) -}}
{{- end -}}
{{- toRawJson $pods -}}
{{- end -}}

{{/* A tls block of nats-server; takes (dict "tls" ... "at" directory). */}}
{{- define "stan.tls" -}}
{{- $at := .at -}}
{{- with .tls -}}
{{- $block := dict
  "cert_file" (printf "%s/%s" $at (default "tls.crt" .cert))
  "key_file" (printf "%s/%s" $at (default "tls.key" .key)) -}}
{{- if or .ca .verify -}}
{{- $_ := set $block "ca_file" (printf "%s/%s" $at (default "ca.crt" .ca)) -}}
{{- end -}}
{{- if .verify -}}
{{- $_ := set $block "verify" true -}}
{{- end -}}
{{- toRawJson $block -}}
{{- end -}}
{{- end -}}

{{/* NATS's part of the configuration, as JSON. */}}
{{- define "stan.natsPart" -}}
{{- $part := dict "http" "0.0.0.0:8222" -}}
{{- if include "stan.embedded" . -}}
{{- $_ := set $part "port" 4222 -}}
{{- with .Values.nats.pingInterval }}{{ $_ := set $part "ping_interval" . }}{{ end -}}
{{- $names := dict "maxConnections" "max_connections" "maxSubscriptions" "max_subscriptions" "maxControlLine" "max_control_line"
  "maxPayload" "max_payload" "writeDeadline" "write_deadline" "maxPending" "max_pending" "maxPings" "ping_max"
  "lameDuckDuration" "lame_duck_duration" -}}
{{- range $old, $name := $names -}}
{{- with get $.Values.nats.limits $old }}{{ $_ := set $part $name . }}{{ end -}}
{{- end -}}
{{- range $old, $name := dict "debug" "debug" "trace" "trace" "logtime" "logtime" "connectErrorReports" "connect_error_reports" "reconnectErrorReports" "reconnect_error_reports" -}}
{{- $value := get $.Values.nats.logging $old -}}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}{{ $_ := set $part $name $value }}{{ end -}}
{{- end -}}
{{- if .Values.nats.tls -}}
{{- $_ := set $part "tls" (include "stan.tls" (dict "tls" .Values.nats.tls "at" "/etc/stan-tls") | fromJson) -}}
{{- end -}}
{{- if gt (int .Values.stan.replicas) 1 -}}
{{- $routes := list -}}
{{- range include "stan.pods" . | fromJsonArray -}}
{{- $routes = append $routes (printf "nats://%s.%s-nodes:6222" . (include "stan.name" $)) -}}
{{- end -}}
{{- $block := dict "name" (include "stan.name" .) "port" 6222 "routes" $routes "connect_retries" .Values.nats.connectRetries -}}
{{- if or .Values.cluster.noAdvertise .Values.nats.tls (not .Values.nats.advertise) -}}
{{- $_ := set $block "no_advertise" true -}}
{{- end -}}
{{- if .Values.cluster.tls -}}
{{- $tls := merge (dict "verify" true) .Values.cluster.tls -}}
{{- $_ := set $block "tls" (include "stan.tls" (dict "tls" $tls "at" "/etc/stan-routes-tls") | fromJson) -}}
{{- end -}}
{{- $_ := set $part "cluster" $block -}}
{{- end -}}
{{- end -}}
{{- toRawJson (mergeOverwrite $part (deepCopy .Values.config.nats)) -}}
{{- end -}}

{{/* The streaming part of the configuration, as JSON. */}}
{{- define "stan.streamingPart" -}}
{{- $nodes := printf "*.%s-nodes" (include "stan.name" .) -}}
{{- $space := .Release.Namespace -}}
{{- $part := dict
  "cluster_id" (include "stan.clusterID" .)
  "http_hosts" (list $nodes (printf "%s.%s.svc" $nodes $space) (printf "%s.%s.svc.cluster.local" $nodes $space))
  "store" (upper .Values.store.type) -}}
{{- if eq .Values.store.type "file" -}}
{{- $_ := set $part "dir" .Values.store.file.path -}}
{{- with .Values.store.file.options }}{{ $_ := set $part "file_options" . }}{{ end -}}
{{- else if eq .Values.store.type "sql" -}}
{{- $_ := set $part "sql_options" (dict "driver" "sqlite" "source" (printf "%s/stan.db" .Values.store.volume.mount)) -}}
{{- end -}}
{{- with .Values.store.limits }}{{ $_ := set $part "store_limits" . }}{{ end -}}
{{- with .Values.store.ft.group }}{{ $_ := set $part "ft_group" . }}{{ end -}}
{{- if .Values.store.partitioning.enabled }}{{ $_ := set $part "partitioning" true }}{{ end -}}
{{- if .Values.stan.logging.debug }}{{ $_ := set $part "stan_debug" true }}{{ end -}}
{{- if .Values.stan.logging.trace }}{{ $_ := set $part "stan_trace" true }}{{ end -}}
{{- if .Values.store.cluster.enabled -}}
{{- $_ := set $part "cluster" (dict "node_id" "$STAN_NODE" "peers" (include "stan.pods" . | fromJsonArray) "allow_add_remove_node" true) -}}
{{- end -}}
{{- with .Values.stan.nats.url }}{{ $_ := set $part "nats_server" . }}{{ end -}}
{{- if .Values.stan.tls.enabled }}{{ $_ := set $part "tls" (omit .Values.stan.tls.settings "timeout") }}{{ end -}}
{{- with .Values.stan.credentials.secret -}}
{{- if .name }}{{ $_ := set $part "credentials" (printf "/etc/stan-creds/%s" .key) }}{{ end -}}
{{- end -}}
{{- with .Values.stan.auth.nkeySeedFile.secret -}}
{{- if .name }}{{ $_ := set $part "nkey_seed_file" (printf "/etc/stan-nkey/%s" .key) }}{{ end -}}
{{- end -}}
{{- toRawJson (mergeOverwrite $part (deepCopy .Values.config.streaming)) -}}
{{- end -}}

{{/* A value in the words of the configuration file: sizes and variables stand without quotes there. */}}
{{- define "stan.confValue" -}}
{{- regexReplaceAll `"(\$[A-Za-z_][A-Za-z0-9_]*|[0-9]+[kKmMgGtT]i?[bB])"` (toRawJson .) "${1}" -}}
{{- end -}}

{{/* Secrets that are mounted, as JSON: volume, secret, at. */}}
{{- define "stan.secrets" -}}
{{- $v := .Values -}}
{{- $found := list -}}
{{- range list
  (dict "volume" "nats-conf" "secret" $v.config.secrets.nats.name "at" "/etc/stan-nats")
  (dict "volume" "streaming-conf" "secret" $v.config.secrets.streaming.name "at" "/etc/stan-streaming")
  (dict "volume" "tls" "secret" (dig "secret" "name" "" $v.nats.tls) "at" "/etc/stan-tls")
  (dict "volume" "routes-tls" "secret" (dig "secret" "name" "" $v.cluster.tls) "at" "/etc/stan-routes-tls")
  (dict "volume" "nats-tls" "secret" (ternary $v.stan.tls.secretName "" $v.stan.tls.enabled) "at" "/etc/nats/certs")
  (dict "volume" "creds" "secret" $v.stan.credentials.secret.name "at" "/etc/stan-creds")
  (dict "volume" "nkey" "secret" $v.stan.auth.nkeySeedFile.secret.name "at" "/etc/stan-nkey")
-}}
{{- if .secret }}{{ $found = append $found . }}{{ end -}}
{{- end -}}
{{- toRawJson $found -}}
{{- end -}}
