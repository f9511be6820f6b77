package normal

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kuberelay/kuberelay/internal/verify/report"
)

// maxPaths is the maximum number of differing fields that are named.
const maxPaths = 5

// Differences returns the paths of the fields in which two values differ, never their values.
func Differences(cluster, bus any) string {
	var paths []string
	compareTrees("", cluster, bus, &paths)
	more := ""
	if len(paths) > maxPaths {
		paths, more = paths[:maxPaths], " and more"
	}
	return strings.Join(paths, ", ") + more
}

// compareTrees appends the paths of differing fields. It stops when there are more than maxPaths.
func compareTrees(path string, a, b any, paths *[]string) {
	if len(*paths) > maxPaths || DigestOf(a) == DigestOf(b) {
		return
	}
	switch a := a.(type) {
	case tree:
		if b, ok := b.(tree); ok {
			names := maps.Clone(a)
			maps.Copy(names, b)
			for _, name := range slices.Sorted(maps.Keys(names)) {
				x, inA := a[name]
				y, inB := b[name]
				where := joinPath(path, name)
				switch {
				case !inB:
					*paths = append(*paths, where+" (not on the bus)")
				case !inA:
					*paths = append(*paths, where+" (only on the bus)")
				default:
					compareTrees(where, x, y, paths)
				}
			}
			return
		}
	case []any:
		if b, ok := b.([]any); ok && len(a) == len(b) {
			for i := range a {
				compareTrees(fmt.Sprintf("%s[%d]", path, i), a[i], b[i], paths)
			}
			return
		}
	case json.Number, string, bool, nil:
	}
	*paths = append(*paths, path)
}

func joinPath(path, name string) string {
	if !report.IsPlain(name) || strings.ContainsAny(name, ".[") {
		return path + "[" + strconv.Quote(name) + "]"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}
