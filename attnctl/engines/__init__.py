"""What other serving engines would pick on the same facts: values, a report, and vllm/."""
