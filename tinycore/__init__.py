"""tinycore: a tensor compiler whose core knows no hardware."""
