module github.com/redlatch/redlatch/internal/release

go 1.26.0

require (
	github.com/redlatch/redlatch v0.0.0
	github.com/stretchr/testify v1.12.1
	golang.org/x/mod v0.43.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/redis/rueidis v1.0.79 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/redlatch/redlatch => ../..
