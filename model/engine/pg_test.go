package engine_test

import "testing"

func postgresPlace(t *testing.T) place { t.Skip("TEMP"); return place{} }
