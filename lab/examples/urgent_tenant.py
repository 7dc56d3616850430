"""The urgent tenant of ``dirigo demo`` alone, as an example of a flow whose objective is to be found.

dirigo slo calibrate lab/examples/urgent_tenant.py --workers 4
"""

from dirigo_lab.demo.tenants import urgent

flow = urgent(workers=4).flow(seconds=600, is_shaped=False)
