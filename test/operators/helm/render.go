// Renders a Helm chart as `helm template` does, with Go's templates, sprig, and the functions that Helm adds to them and charts here use.
// Usage: render CHART RELEASE [VALUES.yaml]; the notes go to standard error.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type object = map[string]interface{}

type files struct{ root string }

// Get returns a file of the chart, or an empty text, as Helm does.
func (f files) Get(name string) string {
	text, _ := os.ReadFile(filepath.Join(f.root, name))
	return string(text)
}

func main() {
	if err := render(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(args []string) error {
	root, release := args[0], args[1]
	values, err := read(filepath.Join(root, "values.yaml"))
	if err != nil {
		return err
	}
	if len(args) > 2 {
		given, err := read(args[2])
		if err != nil {
			return err
		}
		values = overlay(values, given)
	}
	chart, err := read(filepath.Join(root, "Chart.yaml"))
	if err != nil {
		return err
	}
	context := object{
		"Values":  values,
		"Chart":   object{"Name": chart["name"], "Version": chart["version"], "AppVersion": chart["appVersion"]},
		"Release": object{"Name": release, "Namespace": "video", "Service": "Helm"},
		"Files":   files{root},
	}
	return execute(root, context)
}

func execute(root string, context object) error {
	all := template.New("chart").Option("missingkey=zero")
	functions := sprig.TxtFuncMap()
	functions["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	functions["include"] = func(name string, data interface{}) (string, error) {
		var out bytes.Buffer
		err := all.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	all.Funcs(functions)
	names, err := filepath.Glob(filepath.Join(root, "templates", "*"))
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := all.New(filepath.Base(name)).Parse(string(text)); err != nil {
			return err
		}
	}
	for _, name := range names {
		base := filepath.Base(name)
		if strings.HasPrefix(base, "_") {
			continue
		}
		var out bytes.Buffer
		if err := all.ExecuteTemplate(&out, base, context); err != nil {
			return err
		}
		if base == "NOTES.txt" {
			fmt.Fprint(os.Stderr, out.String())
		} else {
			fmt.Printf("---\n# %s\n%s\n", base, out.String())
		}
	}
	return nil
}

func read(name string) (object, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	parsed := object{}
	return parsed, yaml.Unmarshal(text, &parsed)
}

// Values of the second over those of the first; maps are merged, all else is replaced.
func overlay(base, over object) object {
	for name, value := range over {
		inner, isMap := value.(object)
		before, wasMap := base[name].(object)
		if isMap && wasMap {
			base[name] = overlay(before, inner)
		} else {
			base[name] = value
		}
	}
	return base
}
