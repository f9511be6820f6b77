{{/*
selector makes of one of config.resources or config.excludeResources what RBAC wants: {group, resource,
namespaced, cluster, versioned}, of which namespaced and cluster say where it may be, and versioned that
it names a version; or {error}. What the forwarder refuses (checkSelector in internal/config) is an error
here too: an empty group would be the core group to RBAC. What Kubernetes itself has is in
files/resources.yaml.
*/}}
{{- define "kuberelay.selector" -}}
{{- $s := .selector }}
{{- $name := regexFind "^[^.]*" $s }}
{{- $group := trimPrefix $name $s | trimPrefix "." }}
{{- $lower := lower $name }}
{{- $one := dict }}
{{- $meant := "" }}
{{- range .known }}
{{- if or (eq $group "") (eq $group .group) (regexMatch (printf "^v[0-9a-z]+\\.%s$" (replace "." "\\." .group)) $group) }}
{{- if and (eq .name $name) (not $one.name) }}
{{- $one = . }}
{{- else if and (or (has $lower .also) (eq .name $lower)) (not $meant) }}
{{- $meant = ternary .name (printf "%s.%s" .name .group) (eq .group "") }}
{{- end }}
{{- end }}
{{- end }}
{{- $label := "[a-z0-9]([a-z0-9-]*[a-z0-9])?" }}
{{- if eq $s "*" }}
{{- dict "group" "*" "resource" "*" "namespaced" true "cluster" true | toJson }}
{{- else if or (and (contains "*" $name) (ne $name "*")) (contains "*" $group) }}
{{- dict "error" "* cannot stand for a part of a name; write *.apps for a whole group" | toJson }}
{{- else if contains "/" $s }}
{{- dict "error" "a subresource cannot be watched" | toJson }}
{{- else if has "" (splitList "." $s) }}
{{- dict "error" "there is nothing before, after or between dots; write it as pods, deployments.apps or *.apps" | toJson }}
{{- else if eq $group "core" }}
{{- dict "error" "the core group has no name; name its resources, such as pods" | toJson }}
{{- else if not (or (eq $name "*") (and (le (len $name) 63) (regexMatch (printf "^%s$" $label) $lower))) }}
{{- dict "error" (printf "%q is not the name of a resource" $name) | toJson }}
{{- else if and $group (not (regexMatch (printf "^%s(\\.%s)*$" $label $label) $group)) }}
{{- dict "error" (printf "%q is not the name of a group" $group) | toJson }}
{{- else if and (eq $name "*") (regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?(\\.|$)" $group) }}
{{- dict "error" "a whole group is selected without a version; write *.apps" | toJson }}
{{- else if eq $name "*" }}
{{- dict "group" $group "resource" "*" "namespaced" true "cluster" true | toJson }}
{{- else if regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?$" $group }}
{{- dict "error" (printf "after a version there is a group missing; write %s, or %s.%s.example.com" $name $name $group) | toJson }}
{{- else if and (not $one.name) $meant }}
{{- dict "error" (printf "RBAC knows no short names, singulars and kinds; write %s" $meant) | toJson }}
{{- else if regexMatch "[A-Z]" $name }}
{{- dict "error" (printf "RBAC knows no kinds; write the plural with its group, such as %ss.%s" $lower (default "example.com" $group)) | toJson }}
{{- else if and (not $group) (not $one.name) }}
{{- dict "error" (printf "not one of Kubernetes' own resources; write the plural with its group, such as %s.example.com" $name) | toJson }}
{{- else if $one.name }}
{{- dict "group" $one.group "resource" $name "namespaced" $one.namespaced "cluster" (not $one.namespaced) "versioned" (not (has $group (list "" $one.group))) | toJson }}
{{- else }}
{{- $whole := $group }}
{{- $group = regexReplaceAll "^v[0-9]+((alpha|beta)[0-9]+)?\\." $group "" }}
{{- $cluster := has (printf "%s.%s" $name $group) .clusterScoped }}
{{- dict "group" $group "resource" $name "namespaced" (not $cluster) "cluster" $cluster "versioned" (ne $group $whole) | toJson }}
{{- end }}
{{- end }}

{{/*
watch is {namespaced, cluster}: the rules for what is watched in namespaces, and for what is
cluster-scoped or in any namespace. Without config.namespaces all of it is in the second.
An exclusion that names a version takes no rule away: if that version is not served, the
forwarder excludes nothing by it, and a chart cannot know.
*/}}
{{- define "kuberelay.watch" -}}
{{- $config := .Values.config }}
{{- $known := (.Files.Get "files/resources.yaml" | fromYaml).resources }}
{{- $clusterScoped := .Values.rbac.clusterScoped }}
{{- $excluded := list }}
{{- range $config.excludeResources }}
{{- $x := include "kuberelay.selector" (dict "selector" . "known" $known "clusterScoped" $clusterScoped) | fromJson }}
{{- if $x.error }}
{{- fail (printf "config.excludeResources: %s: %s" . $x.error) }}
{{- end }}
{{- if not $x.versioned }}
{{- $excluded = append $excluded (printf "%s/%s" $x.group $x.resource) }}
{{- end }}
{{- end }}
{{- $everywhere := empty $config.namespaces }}
{{- $namespaced := dict }}
{{- $cluster := dict }}
{{- $wildcard := "" }}
{{- $secrets := false }}
{{- range $config.resources }}
{{- $x := include "kuberelay.selector" (dict "selector" . "known" $known "clusterScoped" $clusterScoped) | fromJson }}
{{- if $x.error }}
{{- fail (printf "config.resources: %s: %s" . $x.error) }}
{{- end }}
{{- $name := printf "%s/%s" $x.group $x.resource }}
{{- if not (or (has $name $excluded) (has (printf "%s/*" $x.group) $excluded) (has "*/*" $excluded)) }}
{{- if has $name (list "*/*" "/*") }}{{ $wildcard = . }}{{ end }}
{{- if eq $name "/secrets" }}{{ $secrets = true }}{{ end }}
{{- if and $x.namespaced (not $everywhere) }}
{{- $_ := set $namespaced $x.group (append (default list (get $namespaced $x.group)) $x.resource) }}
{{- end }}
{{- if or $everywhere (and $x.cluster (ne $x.resource "*")) }}
{{- $_ := set $cluster $x.group (append (default list (get $cluster $x.group)) $x.resource) }}
{{- else if $x.cluster }}
{{- /* A wildcard, in namespaces: of what is cluster-scoped, what is known to be there. */}}
{{- range $known }}
{{- if and (not .namespaced) (or (eq $x.group "*") (eq $x.group .group)) (not (has (printf "%s/%s" .group .name) $excluded)) }}
{{- $_ := set $cluster .group (append (default list (get $cluster .group)) .name) }}
{{- end }}
{{- end }}
{{- range $clusterScoped }}
{{- $name := regexFind "^[^.]*" . }}
{{- $group := trimPrefix $name . | trimPrefix "." }}
{{- if and (or (eq $x.group "*") (eq $x.group $group)) (not (has (printf "%s/%s" $group $name) $excluded)) }}
{{- $_ := set $cluster $group (append (default list (get $cluster $group)) $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $wildcard (not $secrets) (not .Values.rbac.secretsByWildcard) }}
{{- fail "config.resources: RBAC cannot leave Secrets out of *, so that the service account could read them. If it may, set rbac.secretsByWildcard=true; if not, write groups, such as *.apps, and the core group's resources by name" }}
{{- end }}
{{- dict "namespaced" (include "kuberelay.rules" $namespaced | fromJsonArray) "cluster" (include "kuberelay.rules" $cluster | fromJsonArray) | toJson }}
{{- end }}

{{/* rules makes rules of a dict of groups and their resources, in order, each resource once. */}}
{{- define "kuberelay.rules" -}}
{{- $rules := list }}
{{- $all := hasKey . "*" }}
{{- range $group := keys . | sortAlpha }}
{{- $resources := get $ $group | uniq | sortAlpha }}
{{- if or (not $all) (eq $group "*") }}
{{- if has "*" $resources }}{{ $resources = list "*" }}{{ end }}
{{- $rules = append $rules (dict "apiGroups" (list $group) "resources" $resources "verbs" (list "get" "list" "watch")) }}
{{- end }}
{{- end }}
{{- $rules | toJson }}
{{- end }}

{{/* namespaces is those that have a Role each, as a list. */}}
{{- define "kuberelay.namespaces" -}}
{{- $names := list }}
{{- range .Values.config.namespaces }}
{{- if not (has . $.Values.config.excludeNamespaces) }}
{{- $names = append $names . }}
{{- end }}
{{- end }}
{{- $names | uniq | toJson }}
{{- end }}

{{/* roleRules is the rules of the Role in each namespace. */}}
{{- define "kuberelay.roleRules" -}}
{{- if .Values.config.namespaces }}
{{- concat (include "kuberelay.watch" . | fromJson).namespaced .Values.rbac.extraRules | toJson }}
{{- else }}[]
{{- end }}
{{- end }}

{{/* clusterRoleRules is the rules of the ClusterRole. */}}
{{- define "kuberelay.clusterRoleRules" -}}
{{- $config := .Values.config }}
{{- $rbac := .Values.rbac }}
{{- $rules := (include "kuberelay.watch" . | fromJson).cluster }}
{{- if not $config.namespaces }}
{{- $rules = concat $rules $rbac.extraRules }}
{{- end }}
{{- if $rbac.definitions }}
{{- $rules = append $rules (dict "apiGroups" (list "apiextensions.k8s.io") "resources" (list "customresourcedefinitions") "verbs" (list "get" "list" "watch")) }}
{{- $rules = append $rules (dict "apiGroups" (list "apiregistration.k8s.io") "resources" (list "apiservices") "verbs" (list "list" "watch")) }}
{{- end }}
{{- if or $config.namespaceSelector (and $config.excludeNamespaces (not $config.namespaces)) }}
{{- $rules = append $rules (dict "apiGroups" (list "") "resources" (list "namespaces") "verbs" (list "list" "watch")) }}
{{- end }}
{{- if $rbac.clusterIdentity }}
{{- $rules = append $rules (dict "apiGroups" (list "") "resources" (list "namespaces") "resourceNames" (list "kube-system") "verbs" (list "get")) }}
{{- end }}
{{- concat $rules $rbac.extraClusterRules | toJson }}
{{- end }}
