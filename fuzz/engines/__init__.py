"""How published engines are provisioned, and one folder of adapters per engine."""
